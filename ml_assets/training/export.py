"""A network's weights as safetensors, written by the trainer and loaded for scoring."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from ml_assets.spec.program import Calibration, ModelManifest, Ref, ShardSchema, TrainRequest
from ml_assets.training.calibration import Calibrator
from ml_assets.training.distributed.ranks import Ranks
from ml_assets.training.model_folder import write_model
from ml_assets.training.models import Network, build, predictions
from ml_assets.training.rows.arrays import Predict, Rows
from ml_assets.training.rows.batches import tensors

WEIGHTS = "weights.safetensors"


def export(
    network: Network,
    request: TrainRequest,
    schema: ShardSchema,
    step: int,
    ranks: Ranks,
    calibrate: Calibrator,
) -> Ref | None:
    """Write the whole model from rank 0; None on the others. All ranks must call it."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(network, options=options)
    if ranks.rank != 0:
        return None
    found = {n: t.contiguous() for n, t in sorted(state.items()) if isinstance(t, torch.Tensor)}

    def calibration(folder: Path, manifest: ModelManifest) -> Calibration | None:
        return calibrate(lambda: load_predictor(folder, manifest, request.world.threads))

    write = partial(save_file, found)
    return write_model(request, schema, step, WEIGHTS, write, calibration)


def load_predictor(folder: Path, manifest: ModelManifest, threads: int) -> Predict:
    """The network of a verified folder, ready to score."""
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("error")
    network = build(manifest.model, manifest.preprocessing, manifest.task, manifest.classes)
    state: dict[str, torch.Tensor] = load_file(folder / manifest.weights.path)
    network.load_state_dict(state)
    network.eval()

    @torch.no_grad()
    def predict(rows: Rows) -> NDArray[np.float64]:
        taken = tensors(rows)
        return predictions(network(taken.numeric, taken.categorical, None), manifest.task).numpy()

    return predict
