"""The metrics of the validation split, the same for networks and trees. No torch.

They are the ones that ``validation_metrics`` of the spec names: a search may judge its trials by
one. They select no weights.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.training import VALIDATION_METRICS, Task
from ml_assets.spec.training_program import Calibration, ShardSchema
from ml_assets.training.calibration import calibrated

_LEVELS_OF_A_LOGIT = 512
_MOST_LEVEL = 20 * _LEVELS_OF_A_LOGIT
"""Scores are ranked by levels of their log-odds, 0.2 % of the odds apart and no further than 20
from even: their counts add up over ranks to the same, however many there are."""
_ORDERED = ("validation_auc", "validation_average_precision")
_NDCG_AT = 10
Array = NDArray[np.float64]


class ValidationMetrics:
    """Sums over predictions that are handed in part by part.

    Args:
        label_std: of a number, by which it is learned; 1 else.
    """

    def __init__(self, task: Task, label_std: float) -> None:
        self._task: Task = task
        self._label_std = label_std
        means = [name for name in VALIDATION_METRICS.get(task, ()) if name not in _ORDERED]
        self._sums = dict.fromkeys(means, 0.0)
        self._units = 0.0
        self._counts = np.zeros((2, 2 * _MOST_LEVEL + 1), np.int64)
        """Rows of each class of a binary label by the level of their score."""

    def add(
        self, predicted: Array, label: NDArray[np.generic], starts: NDArray[np.int64] | None
    ) -> None:
        """A part of the split, of a ranking whole queries.

        Args:
            predicted: [n, outputs], calibrated.
            label: [n] as it is learned: of a ranking the share of its query's gain.
            starts: see ``Rows.starts``.
        """
        if not self._sums:
            return
        each = _of_each(predicted, label, starts, self._task)
        for name, values in each.items():
            self._sums[name] += float(values.sum())
        self._units += len(next(iter(each.values())))
        if self._task == "binary":
            self._counts += _counted(_levels(predicted[:, 0]), label, self._counts.shape[1])

    def found(self, total: Callable[[list[float]], list[float]] = list) -> dict[str, float]:
        """The metrics of all parts.

        Args:
            total: adds numbers up over the processes that had a part.
        """
        if not self._sums:
            return {}
        units, *sums = total([self._units, *self._sums.values()])
        found = {name: value / units for name, value in zip(self._sums, sums, strict=True)}
        if "validation_mae" in found:
            found["validation_mae"] *= self._label_std
        if self._task != "binary":
            return found
        counts = np.array(total(self._counts.ravel().astype(float).tolist()))
        return {**found, **_of_the_order(counts.reshape(self._counts.shape))}


def of_split(
    predicted: Array,
    label: NDArray[np.generic],
    starts: NDArray[np.int64] | None,
    schema: ShardSchema,
    expected: Calibration | None,
) -> dict[str, float]:
    """The metrics of a whole split at once; see ``ValidationMetrics``.

    Args:
        expected: undoes what weights are known to do to the probabilities; None: they did nothing.
    """
    std = schema.label_scale.std if schema.label_scale else 1.0
    if expected is not None:
        predicted = calibrated(predicted, expected)
    metrics = ValidationMetrics(schema.task, std)
    metrics.add(predicted, label, starts)
    found = metrics.found()
    if schema.task == "binary":  # all scores are here: each is a level of its own
        scores, level = np.unique(predicted[:, 0], return_inverse=True)
        found.update(_of_the_order(_counted(level.reshape(-1), label, len(scores)).astype(float)))
    return found


def _of_each(
    predicted: Array, label: NDArray[np.generic], starts: NDArray[np.int64] | None, task: Task
) -> dict[str, Array]:
    """Metrics that are means: of each row [n] or, of a ranking, of each query [queries]."""
    if task == "ranking":
        assert starts is not None
        return {"validation_ndcg": ndcg(predicted[:, 0], label.astype(np.float64), starts)}
    if task == "multiclass":
        true = label.astype(np.int64)
        chosen = predicted[np.arange(len(true)), true]
        return {
            "validation_accuracy": (predicted.argmax(axis=1) == true).astype(np.float64),
            "validation_brier": (predicted**2).sum(axis=1) - 2 * chosen + 1,
        }
    apart = predicted[:, 0] - label.astype(np.float64)
    if task == "regression":
        return {"validation_mae": np.abs(apart)}
    right = (predicted[:, 0] >= 0.5) == (label.astype(np.float64) > 0.5)
    return {"validation_accuracy": right.astype(np.float64), "validation_brier": apart**2}


def ndcg(score: Array, share: Array, starts: NDArray[np.int64]) -> Array:
    """[queries] NDCG of the first ten; rows of equal score share their places, as in the report.

    Args:
        score: [n] as it is predicted.
        share: [n] of the gain of its query, each of which has some.
        starts: [queries + 1] where the rows of each begin.
    """
    query = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    place = np.arange(len(query)) - starts[query]
    discount = np.where(place < _NDCG_AT, 1 / np.log2(place + 2), 0.0)
    order, best = np.lexsort((-score, query)), np.lexsort((-share, query))
    differs = (np.diff(query) != 0) | (np.diff(score[order]) != 0)
    tie = np.concatenate([[0], np.cumsum(differs)])
    shared = (np.bincount(tie, discount) / np.bincount(tie))[tie]
    reached = np.bincount(query, share[order] * shared)
    return reached / np.bincount(query, share[best] * discount)


def _levels(predicted: Array) -> NDArray[np.int64]:
    """[n] levels of probabilities [n]."""
    p = np.clip(predicted, 1e-12, 1 - 1e-12)
    odds = np.rint(np.log(p / (1 - p)) * _LEVELS_OF_A_LOGIT)
    return np.clip(odds, -_MOST_LEVEL, _MOST_LEVEL).astype(np.int64) + _MOST_LEVEL


def _counted(
    level: NDArray[np.int64], label: NDArray[np.generic], levels: int
) -> NDArray[np.int64]:
    """[2, levels] rows of the negative and of the positive class."""
    positive = label.astype(np.float64) > 0.5
    sides = [np.bincount(level[positive == side], minlength=levels) for side in (False, True)]
    return np.stack(sides)


def _of_the_order(counts: Array) -> dict[str, float]:
    """The metrics of the order of the rows; nothing where one class has none."""
    negative, positive = counts[:, ::-1]  # the highest score first
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
