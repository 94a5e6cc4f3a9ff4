"""The loss on the validation split, over all ranks."""

import numpy as np
import torch

from ml_assets.spec.training import Task
from ml_assets.training.data import SplitArrays
from ml_assets.training.losses import prediction_losses
from ml_assets.training.models import Network, probabilities
from ml_assets.training.parallel import Ranks, total

_CHUNK = 1024  # rows whose activations stay in a core's cache


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
