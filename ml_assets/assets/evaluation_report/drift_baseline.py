"""The drift baseline of a release: its training data and its results, to compare later rows
with."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ml_assets.assets.evaluation_report.drift_profile import Profile
from ml_assets.spec.base import Digest, Frozen


class PeriodLoss(Frozen):
    """The loss of one period's labelled rows."""

    period: str
    units: int
    """Rows; of a ranking, queries."""
    blocks: int
    """Rows of one block (a day) are not independent."""
    mean: float
    error: float
    """Standard error of the mean, over blocks."""


def period_loss(
    period: str, losses: NDArray[np.float64], blocks: NDArray[np.int64]
) -> PeriodLoss | None:
    """The mean loss and its error, over blocks (a ratio of sums, linearised: Cochran 1977, 6.4).

    Args:
        losses: [units].
        blocks: [units] the block of each. With a single one, the units are their own.

    Returns:
        None where fewer than two units have a label: nothing can be said.
    """
    if len(losses) < 2:
        return None
    _, place = np.unique(blocks, return_inverse=True)
    if place.max(initial=0) == 0:
        place = np.arange(len(losses))
    mean = float(losses.mean())
    sums = np.bincount(place, weights=losses - mean)
    many = len(sums)
    error = float(np.sqrt(many / (many - 1) * (sums**2).sum())) / len(losses)
    return PeriodLoss(period=period, units=len(losses), blocks=many, mean=mean, error=error)


BASELINE_FILE = "baseline.json"


class Baseline(Frozen):
    """Stored with the report on a model; its digest is in the certificate of the decision."""

    schema_version: Literal[1] = 1
    pipeline: str
    model: Digest
    data: Digest
    """The training set."""
    features: Profile
    """The profile of the training split, by period."""
    labels: Profile
    """The profile of its labels."""
    unlabelled: float
    """The highest share of rows without a label in any training period."""
    predictions: Profile
    """The profile of the predictions on the holdout, which it never saw, by period."""
    losses: tuple[PeriodLoss, ...] = Field(strict=False)
    """The losses of the holdout's periods."""

    @property
    def trained_on(self) -> tuple[str, str]:
        """First and last period of the training split."""
        periods = [one.period or "" for one in self.features.periods]
        return periods[0], periods[-1]
