"""The mean loss of a period's labelled rows, with its error."""

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.base import Frozen


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
