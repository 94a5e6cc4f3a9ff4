"""How the network does on the validation split: the loss over all ranks, and a fixed batch."""

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
from ml_assets.training.models import predictions
from ml_assets.training.rows.arrays import SplitArrays
from ml_assets.training.rows.batches import tensors

_CHUNK = 1024
"""Rows whose activations stay in a core's cache."""
_FIXED_ROWS = 32


@torch.no_grad()
def validation_loss(
    network: nn.Module,
    rows: SplitArrays,
    ranks: Ranks,
    task: Task,
    expected: Calibration | None,
    alive: Callable[[], None],
) -> float:
    """Loss of the ensemble's mean prediction. Every rank runs the same number of chunks.

    Args:
        expected: undoes what weights, draws or a focal loss are known to do, so that the loss is
            that of the model as it is calibrated at the end; None: they did nothing.
        alive: called now and then: a long validation is no standstill.
    """
    network.eval()
    size = max(1, _CHUNK * rows.units // len(rows))  # a ranking's units are many rows
    chunks = -(-rows.units // size)
    loss = count = 0.0
    for number in range(ranks.rank, -(-chunks // ranks.world) * ranks.world, ranks.world):
        alive()
        mine = number < chunks
        start = number * size if mine else 0
        stop = min(start + size, rows.units) if mine else 1
        taken = tensors(rows.take_units(np.arange(start, stop)))
        there = taken.to(ranks.device)
        predicted = predictions(network(there.numeric, there.categorical, None), task).cpu()
        if mine:
            if expected is not None:
                predicted = torch.from_numpy(calibrated(predicted.cpu().numpy(), expected)).to(
                    predicted
                )
            weights = row_weights(taken, task)
            loss += float((prediction_losses(predicted, taken, task) * weights).sum())
            count += float(weights.sum())
    network.train()
    loss, count = total([loss, count])
    return loss / count


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
