"""Evaluates a network on the validation split: the loss that selects the weights, and metrics.

Every rank runs the same number of chunks; sums travel, rows do not.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ml_assets.spec.program import Calibration
from ml_assets.spec.training import Task
from ml_assets.training.calibration import calibrated
from ml_assets.training.distributed.ranks import Ranks, total
from ml_assets.training.losses import prediction_losses, row_weights
from ml_assets.training.models.families import predictions
from ml_assets.training.rows.arrays import SplitArrays
from ml_assets.training.rows.batches import tensors
from ml_assets.training.validation_metrics import ValidationMetrics

_CHUNK = 1024
"""Rows whose activations stay in a core's cache."""
_FIXED_ROWS = 32


@torch.no_grad()
def validate(
    network: nn.Module,
    rows: SplitArrays,
    ranks: Ranks,
    task: Task,
    expected: Calibration | None,
    alive: Callable[[], None],
) -> dict[str, float]:
    """``validation_loss`` of the ensemble's mean prediction, and every metric of the task.

    Args:
        expected: undoes what weights, draws or a focal loss are known to do, so that the loss is
            that of the model as it is calibrated at the end; None: they did nothing.
        alive: called now and then: a long validation is no standstill.
    """
    network.eval()
    size = rows.units_for(_CHUNK)
    chunks = -(-rows.units // size)
    metrics = ValidationMetrics(task, rows.label_scale.std if rows.label_scale else 1.0)
    loss, count = 0.0, 0.0
    for number in range(ranks.rank, -(-chunks // ranks.world) * ranks.world, ranks.world):
        alive()
        mine = number < chunks
        start = number * size if mine else 0
        stop = min(start + size, rows.units) if mine else 1
        taken = tensors(rows.take_units(np.arange(start, stop)))
        there = taken.to(ranks.device)
        predicted = predictions(network(there.numeric, there.categorical, None), task).cpu()
        if expected is not None:
            predicted = torch.from_numpy(calibrated(predicted.numpy(), expected)).to(predicted)
        if mine:
            weights = row_weights(taken, task)
            loss += float((prediction_losses(predicted, taken, task) * weights).sum())
            count += float(weights.sum())
            starts = None if taken.starts is None else taken.starts.numpy()
            metrics.add(predicted.numpy(), taken.label.numpy(), starts)
    network.train()
    loss, count = total([loss, count])
    return {"validation_loss": loss / count, **metrics.found(total)}


@torch.no_grad()
def fixed_batch(
    network: nn.Module, rows: SplitArrays, ranks: Ranks, task: Task
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Labels [r] and predictions [r, outputs] of the same few rows at every call, by all ranks.

    The rows are spread evenly over the split; nothing random is drawn, so training is the same.
    """
    network.eval()
    few = min(_FIXED_ROWS, len(rows))
    places = np.linspace(0, len(rows) - 1, few).astype(np.int64)
    taken = tensors(rows.take(places)).to(ranks.device)
    predicted = predictions(network(taken.numeric, taken.categorical, None), task)
    network.train()
    return taken.label.cpu().numpy(), predicted.cpu().numpy()
