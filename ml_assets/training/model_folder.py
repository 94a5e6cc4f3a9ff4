"""Writes the released model: weights, configuration, preprocessing. Nothing is pickled."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from ml_assets.errors import StorageError
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import (
    Calibration,
    ModelManifest,
    Ref,
    ShardSchema,
    TrainRequest,
)
from ml_assets.store.objects import bytes_digest, describe, file_digest, inside, verify
from ml_assets.store.safetensors_file import check_safetensors
from ml_assets.training.stop import BadData

MANIFEST = "model.json"


def write_model(
    request: TrainRequest,
    schema: ShardSchema,
    step: int,
    weights: str,
    write_weights: Callable[[Path], object],
    calibrate: Callable[[Path, ModelManifest], Calibration | None],
    ensemble: int = 1,
) -> Ref:
    """Write the whole model, by rename.

    Args:
        step: that the weights are of.
        weights: name of their file.
        write_weights: writes that file.
        calibrate: fits the model, whole but for its calibration, to the frequencies.
        ensemble: networks that the weights are of.
    """
    target = Path(request.output.model)
    draft = target.with_name(f".{target.name}.a{request.attempt}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    write_weights(draft / weights)
    manifest = ModelManifest(
        model=request.model,
        task=schema.task,
        classes=schema.classes,
        preprocessing=schema.preprocessing,
        label_scale=schema.label_scale,
        code=request.code.digest if request.code else None,
        ensemble=ensemble,
        weights=describe(draft, [weights])[0],
        step=step,
    )
    calibration = calibrate(draft, manifest)
    if calibration is not None:
        manifest = manifest.model_copy(update={"calibration": calibration})
    (draft / MANIFEST).write_bytes(canonical_json(manifest))
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)
    return Ref(uri=str(target), digest=file_digest(target / MANIFEST))


def open_model(ref: Ref) -> ModelManifest:
    """The manifest of a model, held to its digest, with the weights held to the manifest.

    Raises:
        BadData: it is not what its digest names.
    """
    folder = Path(ref.uri)
    try:
        described = inside(folder, MANIFEST).read_bytes()
        if bytes_digest(described) != ref.digest:
            raise BadData(f"{folder / MANIFEST} is damaged: its checksum is not {ref.digest[:12]}.")
        manifest = ModelManifest.model_validate_json(described)
        weights = inside(folder, manifest.weights.path)
        verify(folder, [manifest.weights])
        if weights.suffix == ".safetensors":
            check_safetensors(weights)
    except (OSError, ValidationError, StorageError) as error:
        raise BadData(f"The model {folder} cannot be used: {error}") from error
    return manifest


def label_words(task: str, classes: Sequence[str]) -> str:
    """What a model predicts, in words."""
    return f"a {task} label" + (f" of the classes {', '.join(classes)}" if classes else "")
