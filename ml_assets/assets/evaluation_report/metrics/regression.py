"""Metrics of predicted numbers, in the label's own unit, and where the prediction errs."""

from dataclasses import dataclass

import numpy as np

from ml_assets.assets.evaluation_report.bootstrap import Resampler
from ml_assets.assets.evaluation_report.rows import Truth
from ml_assets.errors import EvidenceError, counted
from ml_assets.spec.gates import MetricName
from ml_assets.spec.records import CalibrationBin, ResidualBin, Residuals

DECILES = 10


@dataclass(frozen=True)
class Estimated:
    """Observed and predicted values."""

    observed: np.ndarray
    """[n] float64, less their mean: sums of squares then lose no digits."""
    predicted: np.ndarray
    """[n] float64, less the same."""
    center: float
    persistence: np.ndarray | None = None
    """[n] what was seen at the decision, less the same mean; None: the label is of the row."""

    @classmethod
    def of(cls, truth: Truth, predictions: np.ndarray) -> "Estimated":
        """Predictions held to what they must be.

        Raises:
            EvidenceError: some are not finite.
        """
        predicted = np.asarray(predictions, dtype=np.float64).reshape(len(predictions))
        wrong = int((~np.isfinite(predicted)).sum())
        if wrong:
            raise EvidenceError(
                f"{wrong} of {counted(len(predicted), 'prediction')} are not finite; the model"
                " cannot be judged: train it again with a lower learning_rate"
            )
        observed = np.asarray(truth.labels, dtype=np.float64)
        center = float(observed.mean())
        last = None if truth.persistence is None else truth.persistence - center
        return cls(observed - center, predicted - center, center, last)

    def points(self) -> dict[MetricName, float]:
        """RMSE, MAE, R^2 (which a label that never varies does not have) and, of a time series,
        skill: the share of persistence's squared error that the model saves."""
        found = _of_sums(self._values().sum(axis=0)[None])
        return {name: float(value[0]) for name, value in found.items() if np.isfinite(value[0])}

    def losses(self) -> np.ndarray:
        """[n] squared error of each row."""
        return (self.observed - self.predicted) ** 2

    def units(self, of_rows: np.ndarray) -> np.ndarray:
        """[units] the values of rows as values of units: here a row is a unit."""
        return of_rows

    def draws(self, resampler: Resampler) -> dict[MetricName, np.ndarray]:
        """Metric -> [samples] its value on each draw of the bootstrap."""
        return _of_sums(resampler.totals(self._values()))

    def _values(self) -> np.ndarray:
        """[n, 5]: one, squared and absolute error, the label and its square; of a time series a
        sixth column, the squared error of persistence."""
        error = self.observed - self.predicted
        columns = [np.ones(len(error)), error**2, np.abs(error), self.observed, self.observed**2]
        if self.persistence is not None:
            columns.append((self.observed - self.persistence) ** 2)
        return np.stack(columns, axis=1)


def residuals(truth: Truth, predictions: np.ndarray) -> Residuals:
    """The residuals of rows of like predictions, in ten bins of equally many rows."""
    judged = Estimated.of(truth, predictions)
    error = judged.observed - judged.predicted
    bins = [
        ResidualBin(
            predicted=float(judged.predicted[rows].mean()) + judged.center,
            low=float(np.percentile(error[rows], 10)),
            median=float(np.median(error[rows])),
            high=float(np.percentile(error[rows], 90)),
            rows=len(rows),
        )
        for rows in _deciles(judged.predicted)
    ]
    deviation = float(judged.observed.std())
    return Residuals(label_mean=judged.center, label_std=deviation, deciles=tuple(bins))


def predicted_against_observed(truth: Truth, predictions: np.ndarray) -> tuple[CalibrationBin, ...]:
    """The mean of both in ten bins of like predictions."""
    judged = Estimated.of(truth, predictions)
    return tuple(
        CalibrationBin(
            predicted=float(judged.predicted[rows].mean()) + judged.center,
            observed=float(judged.observed[rows].mean()) + judged.center,
            rows=len(rows),
        )
        for rows in _deciles(judged.predicted)
    )


def _of_sums(sums: np.ndarray) -> dict[MetricName, np.ndarray]:
    """Metric -> [draws] from [draws, 5 or 6] sums of ``_values``; NaN where it is undefined."""
    rows, squared, absolute, label, label_squared, *unchanged = sums.T
    spread = label_squared - label**2 / rows
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = np.where(spread > 0, 1 - squared / spread, np.nan)
        saved = [np.where(last > 0, 1 - squared / last, np.nan) for last in unchanged]
    found: dict[MetricName, np.ndarray] = {
        "rmse": np.sqrt(squared / rows),
        "mae": absolute / rows,
        "r2": explained,
    }
    return {**found, "skill": saved[0]} if saved else found


def _deciles(predicted: np.ndarray) -> list[np.ndarray]:
    """The row numbers of each bin; equal predictions share one, so there may be fewer than ten."""
    edges = np.quantile(predicted, np.linspace(0, 1, DECILES + 1)[1:-1])
    place = np.searchsorted(edges, predicted, side="left")
    return [np.flatnonzero(place == number) for number in np.unique(place)]
