"""A release as a folder to hand on: verified when it is written, and by whoever gets it."""

from dataclasses import dataclass
from pathlib import Path

from ml_assets.operations.released import find_release
from ml_assets.operations.workplace import Workplace
from ml_assets.registry.ledger.certificate import certificate_path
from ml_assets.registry.ledger.chain import path_of
from ml_assets.registry.release.bundle import write_bundle
from ml_assets.registry.release.loading import LoadedRelease
from ml_assets.storage.snapshots import MAIN


@dataclass(frozen=True)
class Exported:
    """A folder with a release."""

    folder: Path
    release: LoadedRelease
    new: bool
    """False: it was there already, whole."""


def export_release(place: Workplace, to: Path | None) -> Exported:
    """Write the release of a pipeline to a folder; default: ``./<pipeline>-<model>``.

    Raises:
        NothingReleased: there is none.
        EvidenceError: its decision or certificate does not hold.
        StorageError: its files are not what its digest names.
        SettingsError: the folder holds something else, or cannot be written.
    """
    release = find_release(place)
    folder = (to or Path(f"{place.name}-{release.model.digest[:12]}")).absolute()
    commit, said = place.store.resolve(MAIN), release.override or release.line
    envelope = place.store.read_bytes(commit, certificate_path(place.name, said.seq))

    def line(seq: int) -> bytes:
        return place.store.read_bytes(commit, path_of(place.name, seq))

    overridden = line(release.line.seq) if release.override else None
    new = write_bundle(release, envelope, line(said.seq), overridden, folder)
    return Exported(folder, release, new)
