"""How the network does on the validation split: the loss over all ranks, and a fixed batch."""

import numpy as np
import torch

from ml_assets.spec.training import Task
from ml_assets.training.data import SplitArrays
from ml_assets.training.losses import prediction_losses
from ml_assets.training.models import Network, probabilities
from ml_assets.training.parallel import Ranks, total

_CHUNK = 1024
"""Rows whose activations stay in a core's cache."""
_FIXED_ROWS = 32


@torch.no_grad()
def validation_loss(network: Network, rows: SplitArrays, ranks: Ranks, task: Task) -> float:
    """Log-loss of the ensemble's mean probability. Every rank runs the same number of chunks."""
    network.eval()
    chunks = -(-len(rows) // _CHUNK)
    loss = count = 0.0
    for number in range(ranks.rank, -(-chunks // ranks.world) * ranks.world, ranks.world):
        mine = number < chunks
        start = number * _CHUNK if mine else 0
        stop = min(start + _CHUNK, len(rows)) if mine else 1
        taken = rows.take(np.arange(start, stop))
        p = probabilities(network(taken.numeric, taken.categorical, None), task)
        if mine:
            loss += float(prediction_losses(p, taken.label, task).sum())
            count += stop - start
    network.train()
    loss, count = total([loss, count])
    return loss / count


@torch.no_grad()
def fixed_batch(
    network: Network, rows: SplitArrays, task: Task
) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels [r] and predictions [r, outputs] of the same few rows at every call, by all ranks.

    The rows are spread evenly over the split; nothing random is drawn, so training is the same.
    """
    network.eval()
    few = min(_FIXED_ROWS, len(rows))
    taken = rows.take(np.linspace(0, len(rows) - 1, few).astype(np.int64))
    predictions = probabilities(network(taken.numeric, taken.categorical, None), task)
    network.train()
    return taken.label, predictions
