"""Whether a release has become worse: its loss on matured labels against that on its holdout."""

from collections.abc import Sequence
from math import hypot, inf

import numpy as np

from ml_assets.assets.drift_report.findings import Finding, Measure
from ml_assets.assets.evaluation_report.period_loss import PeriodLoss

LOSS = "mean loss"
"""The column of a finding about performance."""


def judge_loss(
    held: Sequence[PeriodLoss], new: PeriodLoss, alpha: float, floor: float
) -> Finding | None:
    """Whether the rise of the mean loss is beyond chance, and large enough to matter.

    The interval is Student's, with the blocks of the new period for its degrees; it holds the
    errors of both sides and the spread that the holdout's own periods have beyond those.

    Args:
        held: of the holdout's periods.
        floor: the smallest rise that matters, as a share of the holdout's loss.
    """
    from scipy.stats import t

    units = sum(one.units for one in held)
    if not units:
        return None
    share = np.array([one.units / units for one in held])
    means = np.array([one.mean for one in held])
    errors = np.array([one.error for one in held])
    expected = float(share @ means)
    if expected <= 0:
        return None
    between = float(means.var(ddof=1) - (errors**2).mean()) if len(held) > 1 else 0.0
    spread = (max(between, 0.0) * (1 + 1 / len(held))) ** 0.5
    deviation = hypot(new.error, float(np.sqrt(((share * errors) ** 2).sum())), spread)
    by_chance = float(t.isf(alpha, new.blocks - 1)) * deviation / expected
    rise = new.mean / expected - 1
    bound = max(floor, by_chance)
    if not bound < inf:
        return None
    measure = Measure(statistic="loss_rise", value=rise, bound=bound)
    return Finding(kind="performance", column=LOSS, measures=(measure,))
