"""Writes a release to a folder, verified when it is written and again by its receiver."""

from dataclasses import dataclass
from pathlib import Path

from ml_assets.assets.evaluation_report.drift_baseline import BASELINE_FILE
from ml_assets.assets.released_model.bundle import HANDOVER_TYPE, Evidence, write_bundle
from ml_assets.assets.released_model.handover import handover_of
from ml_assets.assets.released_model.predict import require_rows_model
from ml_assets.errors import StorageError
from ml_assets.records.ledger.certificate import certificate_path
from ml_assets.records.ledger.chain import path_of
from ml_assets.records.ledger.origin import find_origin
from ml_assets.records.load_release import LoadedRelease, find_release
from ml_assets.spec.base import canonical_json
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import MAIN


@dataclass(frozen=True)
class Exported:
    """A folder with a release."""

    folder: Path
    release: LoadedRelease
    new: bool
    """False: it was there already, whole."""


def export_release(pipeline: Pipeline, to: Path | None) -> Exported:
    """Write the release of a pipeline to a folder; default: ``./<pipeline>-<model>``.

    Raises:
        SpecError: it is a language model.
        NothingReleased: there is none.
        EvidenceError: its decision or certificate does not hold.
        StorageError: its files are not what its digest names.
        SettingsError: the folder holds something else, or cannot be written; or there is no key to
            sign with, where keys are trusted.
    """
    require_rows_model(pipeline)
    release = find_release(pipeline)
    folder = (to or Path(f"{pipeline.name}-{release.model.digest[:12]}")).absolute()
    commit, said = pipeline.store.resolve(MAIN), release.override or release.line
    envelope = pipeline.store.read_bytes(commit, certificate_path(pipeline.name, said.seq))

    def line(seq: int) -> bytes:
        return pipeline.store.read_bytes(commit, path_of(pipeline.name, seq))

    overridden = line(release.line.seq) if release.override else None
    told, keys = canonical_json(handover_of(pipeline, release, envelope)), pipeline.store.keys
    signature = keys.sign(HANDOVER_TYPE, told)
    baseline = _baseline(pipeline, release)
    evidence = Evidence(envelope, line(said.seq), overridden, baseline, told, signature)
    return Exported(folder, release, write_bundle(release, evidence, folder, keys.trusted))


def _baseline(pipeline: Pipeline, release: LoadedRelease) -> bytes | None:
    """As it was stored; the folder holds it to the certificate."""
    provenance = release.certificate.provenance
    if provenance is None or provenance.baseline is None:
        return None
    origin = find_origin(pipeline.store, pipeline.name, release.model.digest)
    if origin is None:
        raise StorageError(
            f"{pipeline.name}: the baseline of model {release.model.digest[:12]} is lost: no "
            f"commit has its report. Release a model again: ml-assets run {pipeline.name} --fresh"
        )
    path = Address(pipeline.name, "evaluation_report").file(BASELINE_FILE)
    return pipeline.store.read_bytes(origin.commit, path)
