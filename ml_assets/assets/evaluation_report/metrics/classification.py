"""Metrics of a classifier: of its probabilities and of the order they give, in plain numpy.

Predictions are probabilities: [n, 1] of the positive class (binary), [n, k] (multiclass).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ml_assets.assets.evaluation_report.bootstrap import Resampler
from ml_assets.assets.evaluation_report.rows import Truth
from ml_assets.errors import EvidenceError, counted
from ml_assets.spec.gates import MetricName
from ml_assets.spec.records import CalibrationBin, Curve
from ml_assets.spec.training import Task, outputs_of

CALIBRATION_BINS = 15
CURVE_POINTS = 200
_LEVELS = 2000
"""Score levels of the rank metrics inside the bootstrap; their values themselves are exact."""
_EPSILON = float(np.finfo(np.float64).eps)


def calibration(
    truth: Truth, predictions: np.ndarray, bins: int = CALIBRATION_BINS
) -> tuple[CalibrationBin, ...]:
    """Predicted against observed rate, in bins of equally many rows; multiclass: the top class."""
    judged = Classified.of(truth, predictions)
    place = _confidence_bins(judged.confidence, bins)
    rows = np.bincount(place)
    predicted = np.bincount(place, weights=judged.confidence)
    observed = np.bincount(place, weights=judged.hit)
    return tuple(
        CalibrationBin(predicted=float(p / n), observed=float(o / n), rows=int(n))
        for p, o, n in zip(predicted, observed, rows, strict=True)
        if n
    )


def curves(truth: Truth, predictions: np.ndarray) -> tuple[Curve | None, Curve | None]:
    """The ROC and the precision-recall curve, at most 200 points each; binary with both classes."""
    if truth.task != "binary":
        return None, None
    judged = Classified.of(truth, predictions)
    level = np.unique(judged.confidence, return_inverse=True)[1].reshape(-1)
    positive, negative = _by_level(judged.truth == 1, level)
    if not positive.sum() or not negative.sum():
        return None, None
    true, false = np.cumsum(positive[::-1]), np.cumsum(negative[::-1])
    recall, false_rate = true / true[-1], false / false[-1]
    precision = true / (true + false)
    roc = _thin(np.append(0.0, false_rate), np.append(0.0, recall), along="both")
    return roc, _thin(np.append(0.0, recall), np.append(precision[0], precision), along="x")


def confusion(truth: Truth, predictions: np.ndarray) -> dict[str, dict[str, int]]:
    """True class -> predicted class -> rows, of several classes; pairs without rows are left out.

    Predicted is the likeliest class, as the accuracy takes it.
    """
    if truth.task != "multiclass":
        return {}
    judged = Classified.of(truth, predictions)
    both = np.stack([judged.truth, judged.probability.argmax(axis=1)], axis=1)
    pairs, rows = np.unique(both, axis=0, return_counts=True)
    found: dict[str, dict[str, int]] = {}
    for (true, predicted), count in zip(pairs, rows, strict=True):
        row = found.setdefault(truth.classes[int(true)], {})
        row[truth.classes[int(predicted)]] = int(count)
    return found


@dataclass(frozen=True)
class Classified:
    """Labels and probabilities in one shape for both tasks."""

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

    @classmethod
    def of(cls, truth: Truth, predictions: np.ndarray) -> "Classified":
        """Predictions held to what they must be.

        Raises:
            EvidenceError: some are no probabilities.
        """
        outputs = outputs_of(truth.task, truth.classes)
        scores = np.asarray(predictions, dtype=np.float64).reshape(len(predictions), outputs)
        wrong = int((~((scores >= 0) & (scores <= 1))).any(axis=1).sum())
        if wrong:
            raise EvidenceError(
                f"{wrong} of {counted(len(scores), 'prediction')} are not probabilities (NaN, or"
                " outside 0 to 1); the model cannot be judged: train it again with a lower"
                " learning_rate"
            )
        place = _places(truth, max(outputs, 2))
        if truth.task == "binary":
            positive = scores[:, 0]
            both = np.stack([1 - positive, positive], axis=1)
            right = ((positive >= 0.5) == place) * 1.0
            return cls(truth.task, place, both, positive, place * 1.0, right)
        right = (scores.argmax(axis=1) == place) * 1.0
        return cls(truth.task, place, scores, scores.max(axis=1), right, right)

    @property
    def rows(self) -> int:
        return len(self.truth)

    def points(self) -> dict[MetricName, float]:
        """Every metric that is defined on these rows."""
        log_loss, brier, accuracy = self._row_values().mean(axis=0)
        gaps = np.bincount(
            _confidence_bins(self.confidence, CALIBRATION_BINS),
            weights=self.confidence - self.hit,
        )
        points: dict[MetricName, float] = {}
        ranks = [_rank(self.truth == c, self.probability[:, c]) for c in self._ranked_classes]
        auc = float(np.mean([auc for auc, _ in ranks]))
        if np.isfinite(auc):
            points["auc"] = auc
            if self.task == "binary":
                points["average_precision"] = ranks[0][1]
        points["log_loss"] = float(log_loss)
        points["brier"] = float(brier)
        points["accuracy"] = float(accuracy)
        points["ece"] = float(np.abs(gaps).sum() / self.rows)
        return points

    def losses(self) -> np.ndarray:
        """[n] natural-log loss of each row; probabilities are clipped at the float64 epsilon."""
        return self._row_values()[:, 0]

    def units(self, of_rows: np.ndarray) -> np.ndarray:
        """[units] the values of rows as values of units: here a row is a unit."""
        return of_rows

    def draws(self, resampler: Resampler) -> dict[MetricName, np.ndarray]:
        """The values of each metric on the draws of the bootstrap: metric -> [samples].

        The AUC of several classes is the mean of each against the rest.
        """
        ranks = [
            _rank_draws_of_class(self.truth == c, self.probability[:, c], resampler)
            for c in self._ranked_classes
        ]
        aucs = np.mean([auc for auc, _ in ranks], axis=0)
        return {**self.mean_draws(resampler), "auc": aucs, "average_precision": ranks[0][1]}

    def mean_draws(self, resampler: Resampler) -> dict[MetricName, np.ndarray]:
        """Draw the metrics alone that are means over rows, or (ece) over bins fixed beforehand."""
        bins = np.eye(CALIBRATION_BINS)[_confidence_bins(self.confidence, CALIBRATION_BINS)]
        gaps = bins * (self.confidence - self.hit)[:, None]
        values = np.concatenate([np.ones((self.rows, 1)), self._row_values(), gaps], axis=1)
        totals = resampler.totals(values)
        means = totals / totals[:, :1]
        return {
            "log_loss": means[:, 1],
            "brier": means[:, 2],
            "accuracy": means[:, 3],
            "ece": np.abs(means[:, 4:]).sum(axis=1),
        }

    def _row_values(self) -> np.ndarray:
        """[n, 3]: log-loss, Brier score and accuracy of each row."""
        chosen = self.probability[np.arange(self.rows), self.truth]
        log_loss = -np.log(np.clip(chosen, _EPSILON, 1 - _EPSILON))
        if self.task == "binary":
            brier = (self.confidence - self.truth) ** 2
        else:
            brier = (self.probability**2).sum(axis=1) - 2 * chosen + 1
        return np.stack([log_loss, brier, self.right], axis=1)

    @property
    def _ranked_classes(self) -> Sequence[int]:
        return (1,) if self.task == "binary" else range(self.probability.shape[1])


def _places(truth: Truth, classes: int) -> np.ndarray:
    """[n] int64 place of the true class."""
    place = np.asarray(truth.labels).astype(np.int64)
    if place.min() < 0 or place.max() >= classes or np.any(place != truth.labels):
        raise ValueError(f"labels of a {truth.task} model must be whole numbers below {classes}")
    return place


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
