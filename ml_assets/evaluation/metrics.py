"""Metrics of a classifier on labelled rows, with block-bootstrap intervals, in plain numpy.

Predictions are probabilities: [n, 1] of the positive class (binary), [n, k] (multiclass).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ml_assets.errors import EvidenceError
from ml_assets.evaluation.bootstrap import Resampler, interval
from ml_assets.spec.gates import MetricName
from ml_assets.spec.records import CalibrationBin, Curve, Interval, SliceMetrics
from ml_assets.spec.training import Task

CALIBRATION_BINS = 15
CURVE_POINTS = 200
SLICE_ROWS = 200
"""A slice of fewer rows says more about chance than about the model."""
SLICE_VALUES = 12
SLICE_SAMPLES = 200
"""Bootstrap draws of a slice: enough for a whisker."""
COMPARED_BY: tuple[MetricName, ...] = ("auc", "accuracy")
"""The metrics that slices are compared by, with intervals."""
_LEVELS = 2000
"""Score levels of the rank metrics inside the bootstrap; their values themselves are exact."""
_EPSILON = float(np.finfo(np.float64).eps)


def evaluate(
    task: Task,
    classes: Sequence[str],
    labels: np.ndarray,
    predictions: np.ndarray,
    blocks: np.ndarray,
    samples: int,
    seed: int,
) -> dict[MetricName, Interval]:
    """Every metric that is defined on these rows, with its 95% interval.

    Args:
        labels: [n] 0 or 1 (binary), or the place of the class in ``classes``.
        predictions: [n, 1] or [n] (binary), [n, k] (multiclass) probabilities.
        blocks: [n] rows of one block are resampled together.
        samples: bootstrap draws.

    Raises:
        EvidenceError: no rows, or predictions that are no probabilities.
    """
    judged = _judge(task, classes, labels, predictions)
    if len(blocks) != judged.rows:
        raise ValueError(f"{len(blocks)} blocks for {judged.rows} rows")
    resampler = Resampler(blocks, samples, seed)
    points = _points(judged)
    draws = {**_mean_draws(judged, resampler), **_rank_draws(judged, resampler)}
    return {name: interval(value, draws[name]) for name, value in points.items()}


def point_metrics(
    task: Task, classes: Sequence[str], labels: np.ndarray, predictions: np.ndarray
) -> dict[MetricName, float]:
    """The same metrics without intervals: of a baseline, a champion, a slice."""
    return _points(_judge(task, classes, labels, predictions))


def row_log_loss(
    task: Task, classes: Sequence[str], labels: np.ndarray, predictions: np.ndarray
) -> np.ndarray:
    """[n] natural-log loss of each row; probabilities are clipped at the float64 epsilon."""
    return _row_values(_judge(task, classes, labels, predictions))[:, 0]


def calibration(
    task: Task,
    classes: Sequence[str],
    labels: np.ndarray,
    predictions: np.ndarray,
    bins: int = CALIBRATION_BINS,
) -> tuple[CalibrationBin, ...]:
    """Predicted against observed rate, in bins of equally many rows; multiclass: the top class."""
    judged = _judge(task, classes, labels, predictions)
    place = _confidence_bins(judged.confidence, bins)
    rows = np.bincount(place)
    predicted = np.bincount(place, weights=judged.confidence)
    observed = np.bincount(place, weights=judged.hit)
    return tuple(
        CalibrationBin(predicted=float(p / n), observed=float(o / n), rows=int(n))
        for p, o, n in zip(predicted, observed, rows, strict=True)
        if n
    )


def curves(
    task: Task, labels: np.ndarray, predictions: np.ndarray
) -> tuple[Curve | None, Curve | None]:
    """The ROC and the precision-recall curve, at most 200 points each; binary with both classes."""
    if task != "binary":
        return None, None
    judged = _judge(task, (), labels, predictions)
    level = np.unique(judged.confidence, return_inverse=True)[1].reshape(-1)
    positive, negative = _by_level(judged.truth == 1, level)
    if not positive.sum() or not negative.sum():
        return None, None
    true, false = np.cumsum(positive[::-1]), np.cumsum(negative[::-1])
    recall, false_rate = true / true[-1], false / false[-1]
    precision = true / (true + false)
    roc = _thin(np.append(0.0, false_rate), np.append(0.0, recall), along="both")
    return roc, _thin(np.append(0.0, recall), np.append(precision[0], precision), along="x")


def slice_metrics(
    task: Task,
    classes: Sequence[str],
    labels: np.ndarray,
    predictions: np.ndarray,
    columns: Mapping[str, pl.Series],
    blocks: np.ndarray,
    *,
    seed: int = 0,
    values: int = SLICE_VALUES,
    least_rows: int = SLICE_ROWS,
) -> tuple[SliceMetrics, ...]:
    """The metrics of each column's most frequent values, largest first.

    Args:
        columns: name -> [n] values in the order of the rows; null is a value of its own.
        blocks: [n] rows of one block are resampled together, for the intervals.
        values: most values shown for a column.
        least_rows: smaller slices are left out.
    """
    found: list[SliceMetrics] = []
    for column, series in columns.items():
        if len(series) != len(labels):
            raise ValueError(f"slice column {column!r} has {len(series)} rows, not {len(labels)}")
        text = series.cast(pl.String).fill_null("(none)").to_numpy()
        names, place, rows = np.unique(text, return_inverse=True, return_counts=True)
        largest = sorted(range(len(names)), key=lambda i: (-rows[i], names[i]))[:values]
        for index in largest:
            if rows[index] < least_rows:
                continue
            here = place.reshape(-1) == index
            measured = evaluate(
                task, classes, labels[here], predictions[here], blocks[here], SLICE_SAMPLES, seed
            )
            found.append(
                SliceMetrics(
                    column=column,
                    value=str(names[index]),
                    rows=int(rows[index]),
                    metrics={str(name): one.value for name, one in measured.items()},
                    intervals={str(n): measured[n] for n in COMPARED_BY if n in measured},
                )
            )
    return tuple(found)


@dataclass(frozen=True)
class _Judged:
    """Labels and predictions in one shape for both tasks."""

    task: Task
    truth: np.ndarray
    """[n] int64 place of the true class."""
    probability: np.ndarray
    """[n, k] float64; binary: of 0 and of 1."""
    confidence: np.ndarray
    """[n] of the positive class (binary) or of the class predicted."""
    hit: np.ndarray
    """[n] 1.0 where what ``confidence`` speaks of came true."""
    right: np.ndarray
    """[n] 1.0 where the class predicted is the true one."""

    @property
    def rows(self) -> int:
        return len(self.truth)


def _judge(
    task: Task, classes: Sequence[str], labels: np.ndarray, predictions: np.ndarray
) -> _Judged:
    scores = np.asarray(predictions, dtype=np.float64)
    scores = scores[:, None] if scores.ndim == 1 else scores
    outputs = 1 if task == "binary" else len(classes)
    if scores.ndim != 2 or scores.shape[1] != outputs:
        raise ValueError(f"predictions are {scores.shape}; a {task} model has {outputs} outputs")
    if len(scores) != len(labels):
        raise ValueError(f"{len(scores)} predictions for {len(labels)} labels")
    if not len(scores):
        raise EvidenceError("the holdout has no rows: there is nothing to judge the model on")
    wrong = int((~((scores >= 0) & (scores <= 1))).any(axis=1).sum())
    if wrong:
        raise EvidenceError(
            f"{wrong} of {len(scores)} predictions are not probabilities (NaN, or outside 0 to 1);"
            " the model cannot be judged: train it again with a lower learning_rate"
        )
    truth = np.asarray(labels).astype(np.int64)
    if truth.min() < 0 or truth.max() >= max(outputs, 2) or np.any(truth != labels):
        raise ValueError(f"labels of a {task} model must be whole numbers below {max(outputs, 2)}")
    if task == "binary":
        positive = scores[:, 0]
        both = np.stack([1 - positive, positive], axis=1)
        return _Judged(task, truth, both, positive, truth * 1.0, ((positive >= 0.5) == truth) * 1.0)
    right = (scores.argmax(axis=1) == truth) * 1.0
    return _Judged(task, truth, scores, scores.max(axis=1), right, right)


def _points(judged: _Judged) -> dict[MetricName, float]:
    log_loss, brier, accuracy = _row_values(judged).mean(axis=0)
    gaps = np.bincount(
        _confidence_bins(judged.confidence, CALIBRATION_BINS),
        weights=judged.confidence - judged.hit,
    )
    points: dict[MetricName, float] = {}
    ranks = [_rank(judged.truth == c, judged.probability[:, c]) for c in _ranked_classes(judged)]
    auc = float(np.mean([auc for auc, _ in ranks]))
    if np.isfinite(auc):
        points["auc"] = auc
        if judged.task == "binary":
            points["average_precision"] = ranks[0][1]
    points["log_loss"] = float(log_loss)
    points["brier"] = float(brier)
    points["accuracy"] = float(accuracy)
    points["ece"] = float(np.abs(gaps).sum() / judged.rows)
    return points


def _row_values(judged: _Judged) -> np.ndarray:
    """[n, 3]: log-loss, Brier score and accuracy of each row."""
    chosen = judged.probability[np.arange(judged.rows), judged.truth]
    log_loss = -np.log(np.clip(chosen, _EPSILON, 1 - _EPSILON))
    if judged.task == "binary":
        brier = (judged.confidence - judged.truth) ** 2
    else:
        brier = (judged.probability**2).sum(axis=1) - 2 * chosen + 1
    return np.stack([log_loss, brier, judged.right], axis=1)


def _mean_draws(judged: _Judged, resampler: Resampler) -> dict[MetricName, np.ndarray]:
    """Metrics that are a mean over rows, or (ece) over bins fixed beforehand."""
    bins = np.eye(CALIBRATION_BINS)[_confidence_bins(judged.confidence, CALIBRATION_BINS)]
    gaps = bins * (judged.confidence - judged.hit)[:, None]
    values = np.concatenate([np.ones((judged.rows, 1)), _row_values(judged), gaps], axis=1)
    totals = resampler.totals(values)
    means = totals / totals[:, :1]
    return {
        "log_loss": means[:, 1],
        "brier": means[:, 2],
        "accuracy": means[:, 3],
        "ece": np.abs(means[:, 4:]).sum(axis=1),
    }


def _rank_draws(judged: _Judged, resampler: Resampler) -> dict[MetricName, np.ndarray]:
    """AUC (multiclass: mean of one class against the rest) and average precision."""
    per_class = [
        _rank_draws_of_class(judged.truth == c, judged.probability[:, c], resampler)
        for c in _ranked_classes(judged)
    ]
    aucs = np.mean([auc for auc, _ in per_class], axis=0)
    return {"auc": aucs, "average_precision": per_class[0][1]}


def _rank_draws_of_class(
    positive: np.ndarray, score: np.ndarray, resampler: Resampler
) -> tuple[np.ndarray, np.ndarray]:
    level = _levels(score)
    levels = int(level.max()) + 1
    draws = [
        _rank_of(counts[:, levels:], counts[:, :levels])
        for counts in resampler.histograms(level + levels * positive, 2 * levels)
    ]
    exact = _rank(positive, score)
    coarse = _rank_of(*(side[None] for side in _by_level(positive, level, levels)))
    auc, precision = (np.concatenate(parts) for parts in zip(*draws, strict=True))
    return auc + (exact[0] - coarse[0]), precision + (exact[1] - coarse[1])


def _ranked_classes(judged: _Judged) -> Sequence[int]:
    return (1,) if judged.task == "binary" else range(judged.probability.shape[1])


def _rank(positive: np.ndarray, score: np.ndarray) -> tuple[float, float]:
    """Exact (AUC, average precision); NaN where a class is absent."""
    level = np.unique(score, return_inverse=True)[1].reshape(-1)
    auc, precision = _rank_of(*(side[None] for side in _by_level(positive, level)))
    return float(auc[0]), float(precision[0])


def _by_level(
    positive: np.ndarray, level: np.ndarray, levels: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """[levels] positive and negative rows at each score level, lowest score first."""
    size = max(levels, int(level.max()) + 1)
    return (
        np.bincount(level[positive], minlength=size).astype(np.float64),
        np.bincount(level[~positive], minlength=size).astype(np.float64),
    )


def _rank_of(positive: np.ndarray, negative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[draws] AUC and average precision from [draws, levels] rows at each level, lowest first."""
    below = np.cumsum(negative, axis=1) - negative / 2
    total, others = positive.sum(axis=1), negative.sum(axis=1)
    true = np.cumsum(positive[:, ::-1], axis=1)
    taken = true + np.cumsum(negative[:, ::-1], axis=1)
    precision = np.divide(true, taken, out=np.zeros_like(true), where=taken > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        auc = (positive * below).sum(axis=1) / (total * others)
        average = (precision * positive[:, ::-1]).sum(axis=1) / total
    both = (total > 0) & (others > 0)
    return np.where(both, auc, np.nan), np.where(both, average, np.nan)


def _levels(score: np.ndarray) -> np.ndarray:
    """[n] score level: each value its own, or quantiles where there are too many."""
    values, place, rows = np.unique(score, return_inverse=True, return_counts=True)
    if len(values) <= _LEVELS:
        return place.reshape(-1)
    before = np.cumsum(rows) - rows
    return (before * _LEVELS // len(score))[place.reshape(-1)]


def _confidence_bins(confidence: np.ndarray, bins: int) -> np.ndarray:
    """[n] bin of each row; bins hold equally many rows, and equal values share one."""
    edges = np.quantile(confidence, np.linspace(0, 1, bins + 1)[1:-1])
    return np.searchsorted(edges, confidence, side="left")


def _thin(x: np.ndarray, y: np.ndarray, along: str) -> Curve:
    """At most ``CURVE_POINTS`` points, evenly spaced along the curve (or along x), ends kept."""
    if len(x) > CURVE_POINTS:
        way = x + y if along == "both" else x
        wanted = np.linspace(way[0], way[-1], CURVE_POINTS)
        kept = np.unique(np.append(np.searchsorted(way, wanted).clip(max=len(x) - 1), len(x) - 1))
        kept = kept if len(kept) <= CURVE_POINTS else np.delete(kept, -2)
        x, y = x[kept], y[kept]
    return Curve(x=tuple(x.round(5).tolist()), y=tuple(y.round(5).tolist()))
