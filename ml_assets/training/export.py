"""The model as it is released: safetensors, configuration, preprocessing. Nothing is pickled."""

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from ml_assets.errors import StorageError
from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.program import ModelManifest, Ref, ShardSchema, TrainRequest
from ml_assets.storage.objects import describe, file_digest, verify
from ml_assets.training.models import Network, build
from ml_assets.training.parallel import Ranks
from ml_assets.training.stop import BadData

MANIFEST = "model.json"
WEIGHTS = "weights.safetensors"


def export(
    network: Network, request: TrainRequest, schema: ShardSchema, step: int, ranks: Ranks
) -> Ref | None:
    """Write the whole model from rank 0, by rename; None on the others. All ranks must call it."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(network, options=options)
    if ranks.rank != 0:
        return None
    target = Path(request.output.model)
    draft = target.with_name(f".{target.name}.a{request.attempt}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    tensors = {n: t.contiguous() for n, t in sorted(state.items()) if isinstance(t, torch.Tensor)}
    save_file(tensors, draft / WEIGHTS)
    manifest = ModelManifest(
        model=request.model,
        task=schema.task,
        classes=schema.classes,
        preprocessing=schema.preprocessing,
        label_scale=schema.label_scale,
        weights=describe(draft, [WEIGHTS])[0],
        session=request.session,
        step=step,
    )
    (draft / MANIFEST).write_bytes(canonical_json(manifest))
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)
    return Ref(uri=str(target), digest=file_digest(target / MANIFEST))


def load_model(ref: Ref) -> tuple[ModelManifest, Network]:
    """A model ready to score.

    Raises:
        BadData: it is not what its digest names.
    """
    folder = Path(ref.uri)
    try:
        if file_digest(folder / MANIFEST) != ref.digest:
            raise BadData(f"{folder / MANIFEST} is damaged: its checksum is not {ref.digest[:12]}.")
        manifest = ModelManifest.model_validate_json((folder / MANIFEST).read_bytes())
        verify(folder, [manifest.weights])
    except (OSError, StorageError) as error:
        raise BadData(f"The model {folder} cannot be used: {error}") from error
    network = build(manifest.model, manifest.preprocessing, manifest.task, manifest.classes)
    state: dict[str, torch.Tensor] = load_file(folder / WEIGHTS)
    network.load_state_dict(state)
    return manifest, network.eval()
