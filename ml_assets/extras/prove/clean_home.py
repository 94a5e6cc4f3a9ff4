"""A clean home: a state folder of its own, in which a claim is made again.

It shares the sources with the real home. Everything else from there is named by digest: raw
snapshots, the ledger as it was, a model for comparison or initial weights.
"""

import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ml_assets.adapters.runs import open_instance
from ml_assets.adapters.step import Instance
from ml_assets.errors import SettingsError, StorageError, StoreAway
from ml_assets.extras.prove.claim import address_of
from ml_assets.records.load_release import held_manifest
from ml_assets.records.record_history import Made
from ml_assets.settings import Settings, environment_apart, read_settings
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import Ref
from ml_assets.store import home
from ml_assets.store.embedded.trust import given_keys
from ml_assets.store.kept_code import bring_network
from ml_assets.store.layout import Address
from ml_assets.store.objects import LocalObjects
from ml_assets.store.open import ephemeral_place, open_objects, open_snapshots
from ml_assets.store.s3.client import S3Place
from ml_assets.store.snapshots import MAIN, CommitId, SnapshotStore


@dataclass(frozen=True)
class CleanHome:
    """The clean home, and the store of the real one to bring things from."""

    settings: Settings
    instance: Instance
    store: SnapshotStore
    objects: LocalObjects
    real: SnapshotStore
    real_objects: LocalObjects

    def bring_tables(self, wanted: Sequence[Made]) -> None:
        """Tables with their records, as they were.

        Raises:
            StorageError: one is lost or damaged.
        """
        files: dict[str, bytes] = {}
        for made in wanted:
            address = address_of(made)
            files[address.table] = self.real.read_bytes(made.commit, address.table)
            files[address.record] = canonical_json(made.record)
        self._put("tables", files)

    def bring_ledger(self, pipeline: str, commit: CommitId) -> None:
        """The ledger as of a commit, with its certificates, in place of what was told here.

        Raises:
            StorageError: that state of ``main`` is no longer kept.
        """
        if all(commit != one.id for one in self.real.history()):
            raise StorageError(
                f"{pipeline} cannot be proved: the state {commit[:12]} of main, by whose ledger it"
                " was trained or judged, was collected as old history (`ml-assets ops gc`). States"
                " of models with a decision are kept; ML_ASSETS_RETENTION keeps those of others"
                ' longer, such as "history=365d".'
            )
        prefixes = (f"ledger/{pipeline}/", f"certificates/{pipeline}/")
        files = {
            entry.path: self.real.read_bytes(commit, entry.path)
            for prefix in prefixes
            for entry in self.real.list(commit, prefix)
        }
        there = self.store.resolve(MAIN)
        own = {entry.path for prefix in prefixes for entry in self.store.list(there, prefix)}
        self._put(f"ledger as of {commit}", files, remove=own - files.keys())

    def bring_spread(self, pipeline: str, commit: CommitId) -> None:
        """How far seeds spread, where it was known: it is measured once for a spec, on its data."""
        prefix = f"{Address(pipeline, 'evaluation_report').file('seeds-')}"
        files = {
            e.path: self.real.read_bytes(commit, e.path) for e in self.real.list(commit, prefix)
        }
        self._put(f"spread as of {commit}", files)

    def bring_model(self, digest: str) -> None:
        """A model that was there before: a champion, or weights to begin with.

        Raises:
            StorageError: it is not kept any more, or is damaged.
        """
        folder = self.real_objects.here("models", digest)
        if not folder.is_dir():
            raise StorageError(
                f"The proof needs model {digest[:12]}, to compare with it or to begin from it, and"
                f" it is no longer kept: there is no {folder}. So nothing can be proved."
            )
        self.objects.adopt(Ref(uri=str(folder), digest=digest), "models", "model.json")
        bring_network(self.real_objects, self.objects, held_manifest(folder, digest))

    def _put(self, what: str, files: Mapping[str, bytes], remove: Collection[str] = ()) -> None:
        if not files and not remove:
            return
        with self.store.open(self.store.resolve(MAIN), f"bring {what}") as workspace:
            for path, data in files.items():
                workspace.put_bytes(path, data)
            for path in remove:
                workspace.remove(path)
            workspace.commit(f"bring {what}", {})
            workspace.publish()


@contextmanager
def clean_home(settings: Settings, keep: Path | None) -> Iterator[CleanHome]:
    """Work in a clean home; the environment of this process is the clean one's meanwhile.

    Args:
        keep: an empty folder, or one to make, that stays; None: a temporary one.

    Raises:
        SettingsError: the folder to keep holds something.
    """
    with ExitStack() as stack:
        if keep is None:
            temporary = tempfile.TemporaryDirectory(prefix="ml-assets-prove-")
            folder = Path(stack.enter_context(temporary))
        else:
            folder = _empty(keep.expanduser().resolve())
        wanted = environment_apart(settings, folder, given_keys().trusted)
        if settings.launcher == "kubernetes":
            wanted["ML_ASSETS_OBJECTS"] = stack.enter_context(_place_of_pods(settings, keep))
        stack.enter_context(_environment(wanted))
        apart = read_settings(wanted)
        home.prepare(apart)
        instance = stack.enter_context(open_instance())
        yield CleanHome(
            apart,
            instance,
            open_snapshots(apart.snapshots),
            open_objects(apart.objects, apart.cache),
            open_snapshots(settings.snapshots),
            open_objects(settings.objects, settings.cache),
        )


@contextmanager
def _place_of_pods(settings: Settings, keep: Path | None) -> Iterator[str]:
    """The clean home's objects where its pods reach them, too; kept ones stay a day."""
    address = ephemeral_place(settings.objects, "prove")
    try:
        yield address
    finally:
        if keep is None:
            with suppress(StoreAway):  # then house-keeping deletes it
                S3Place(address).discard_below()


def _empty(folder: Path) -> Path:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingsError(
            f"--keep names {folder}, which is not empty, and a clean home begins empty. Name"
            " another folder."
        )
    return folder


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
