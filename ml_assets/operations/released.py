"""The release of a pipeline: the model that the ledger names, held to its digest before use."""

from dataclasses import dataclass

from pydantic import ValidationError

from ml_assets.errors import NothingReleased, StorageError
from ml_assets.operations.workplace import Workplace
from ml_assets.registry.ledger import read, stage_line
from ml_assets.registry.recalls import require_sound_model
from ml_assets.spec.program import ModelManifest, Ref
from ml_assets.spec.records import LedgerEntry
from ml_assets.storage.objects import file_digest, verify
from ml_assets.storage.snapshots import MAIN

MANIFEST = "model.json"


@dataclass(frozen=True)
class Release:
    """A model in its stage, verified."""

    model: Ref
    manifest: ModelManifest
    entry: LedgerEntry
    """The line of the ledger that put it there."""


def find_release(place: Workplace) -> Release:
    """The model in the stage that the pipeline releases to.

    Raises:
        NothingReleased: the ledger names none.
        StorageError: the model is lost or damaged: its files are not what its digest names.
        Recalled: it was made from bad data.
    """
    stage = place.spec.release.to
    entry = stage_line(read(place.store, place.name), stage)
    if entry is None:
        raise NothingReleased(
            f"{place.name} has no model in {stage}: the ledger names none. Release one first:"
            f" ml-assets run {place.name}"
        )
    require_sound_model(place.store, place.store.resolve(MAIN), place.name, entry.model)
    folder = place.objects.path("models", entry.model)
    manifest = folder / MANIFEST
    remedy = f"It is not used. Make it again: ml-assets run {place.name} --fresh"
    if not manifest.is_file() or file_digest(manifest) != entry.model:
        raise StorageError(
            f"The model {entry.model[:12]} in {stage} is lost or damaged: {manifest} is not what"
            f" its digest names. {remedy}"
        )
    try:
        described = ModelManifest.model_validate_json(manifest.read_bytes())
        verify(folder, [described.weights])
    except (ValidationError, StorageError) as error:
        raise StorageError(
            f"The model {entry.model[:12]} in {stage} cannot be used: {error} {remedy}"
        ) from error
    return Release(Ref(uri=str(folder), digest=entry.model), described, entry)
