"""Bits per byte of texts: the length of a code for them, comparable across vocabularies."""

from dataclasses import dataclass
from math import log

import numpy as np

from ml_assets.assets.evaluation_report.bootstrap import Resampler
from ml_assets.assets.evaluation_report.rows import Truth
from ml_assets.errors import EvidenceError, counted
from ml_assets.spec.gates import MetricName


@dataclass(frozen=True)
class Coded:
    """Holds what each text takes."""

    bits: np.ndarray
    """[n]."""
    bytes: np.ndarray
    """[n]."""

    @classmethod
    def of(cls, truth: Truth, predictions: np.ndarray) -> "Coded":
        """The nats of each text, held to what they must be.

        Raises:
            EvidenceError: some are not finite, or below 0: the probabilities do not add up to 1.
        """
        nats = np.asarray(predictions, dtype=np.float64).reshape(len(predictions))
        wrong = int((~np.isfinite(nats) | (nats < 0)).sum())
        if wrong:
            raise EvidenceError(
                f"the loss of {wrong} of {counted(len(nats), 'text')} is negative or not finite; "
                "the model cannot be judged: train it again with a lower learning_rate"
            )
        return cls(nats / log(2), np.asarray(truth.labels, dtype=np.float64))

    def points(self) -> dict[MetricName, float]:
        """The bits of all texts over their bytes."""
        whole = float(self.bytes.sum())
        return {"bits_per_byte": float(self.bits.sum()) / whole} if whole else {}

    def losses(self) -> np.ndarray:
        """[n] bits per byte of each text; of an empty one its bits."""
        return self.bits / np.maximum(self.bytes, 1)

    def units(self, of_rows: np.ndarray) -> np.ndarray:
        """[units] the values of rows as values of units: a text is a row."""
        return of_rows

    def draws(self, resampler: Resampler) -> dict[MetricName, np.ndarray]:
        """Metric -> [samples] its value on each draw of the bootstrap."""
        sums = resampler.totals(np.stack([self.bits, self.bytes], axis=1))
        with np.errstate(divide="ignore", invalid="ignore"):
            return {"bits_per_byte": sums[:, 0] / sums[:, 1]}
