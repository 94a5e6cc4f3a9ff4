"""What the validation split says of the weights: the loss that they are chosen by, and metrics.

The metrics are what ``validation_metrics`` of the spec names: a search may judge its trials by one.
They choose no weights. Every rank runs the same number of chunks; sums travel, rows do not.
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
from ml_assets.training.rows.batches import Tensors, tensors

_CHUNK = 1024
"""Rows whose activations stay in a core's cache."""
_FIXED_ROWS = 32
_LEVELS_OF_A_LOGIT = 512
_MOST_LEVEL = 20 * _LEVELS_OF_A_LOGIT
"""Scores are ranked by levels of their log-odds, 0.2 % of the odds apart and no further than 20
from even: their counts add up over ranks to the same, however many there are."""


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
    sums: dict[str, float] = {}
    count, counts = 0.0, np.zeros((2, 2 * _MOST_LEVEL + 1), np.int64)
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
        weights = row_weights(taken, task)
        for name, values in _of_each_row(predicted, taken, task).items():
            of_mine = float((values * weights).sum()) if mine else 0.0
            sums[name] = sums.get(name, 0.0) + of_mine
        if mine:
            count += float(weights.sum())
        if mine and task == "binary":
            _count_levels(counts, predicted, taken)
    network.train()
    count, *added = total([count, *sums.values()])
    found = {name: value / count for name, value in zip(sums, added, strict=True)}
    if "validation_mae" in found and rows.label_scale is not None:
        found["validation_mae"] *= rows.label_scale.std
    return {**found, **(_ranked(counts, ranks) if task == "binary" else {})}


def _of_each_row(predicted: torch.Tensor, rows: Tensors, task: Task) -> dict[str, torch.Tensor]:
    """What is a mean over rows: metric -> [n]; of a number, in the unit that it is learned in."""
    found = {"validation_loss": prediction_losses(predicted, rows, task)}
    if task == "binary":
        true, p = rows.label.double(), predicted[:, 0].double()
        found["validation_accuracy"] = ((p >= 0.5) == (true > 0.5)).double()
        found["validation_brier"] = (p - true) ** 2
    elif task == "multiclass":
        true = rows.label.long()
        chosen = predicted.double().gather(1, true[:, None])[:, 0]
        found["validation_accuracy"] = (predicted.argmax(dim=1) == true).double()
        found["validation_brier"] = (predicted.double() ** 2).sum(dim=1) - 2 * chosen + 1
    elif task == "regression":
        found["validation_mae"] = (predicted[:, 0] - rows.label.double()).abs()
    return found


def _count_levels(counts: NDArray[np.int64], predicted: torch.Tensor, rows: Tensors) -> None:
    """Add the rows of a chunk to counts [2, levels], of negative and positive ones."""
    odds = torch.logit(predicted[:, 0].double(), eps=1e-12) * _LEVELS_OF_A_LOGIT
    level = odds.round().clamp(-_MOST_LEVEL, _MOST_LEVEL).long().numpy() + _MOST_LEVEL
    for side in (0, 1):
        np.add.at(counts[side], level[(rows.label > 0.5).numpy() == side], 1)


def _ranked(counts: NDArray[np.int64], ranks: Ranks) -> dict[str, float]:
    """The metrics of the order of the rows; nothing where one class has none."""
    if ranks.world > 1:
        counts = np.array(total(counts.ravel().astype(float).tolist())).reshape(counts.shape)
    negative, positive = counts[:, ::-1].astype(float)  # the highest score first
    if not negative.sum() or not positive.sum():
        return {}
    true, false = np.cumsum(positive), np.cumsum(negative)
    below = false[-1] - false + negative / 2  # equal scores count half
    some = positive > 0
    precision = true[some] / (true + false)[some]
    return {
        "validation_auc": float((positive * below).sum() / (true[-1] * false[-1])),
        "validation_average_precision": float((positive[some] * precision).sum() / true[-1]),
    }


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
