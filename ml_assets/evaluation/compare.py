"""A candidate against the champion on the same rows: paired differences, from the same draws."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ml_assets.evaluation.bootstrap import Resampler, interval
from ml_assets.evaluation.metrics import Judged, judged
from ml_assets.evaluation.rows import Truth
from ml_assets.spec.gates import MetricName
from ml_assets.spec.records import Difference, Interval


@dataclass(frozen=True)
class Pair:
    """Two models on the same rows, resampled together.

    Raises:
        EvidenceError: no rows, or predictions that are none.
    """

    candidate: Judged
    champion: Judged
    resampler: Resampler

    @classmethod
    def of(
        cls,
        truth: Truth,
        candidate: np.ndarray,
        champion: np.ndarray,
        blocks: np.ndarray,
        samples: int,
        seed: int,
    ) -> "Pair":
        """The pair, from [n, outputs] predictions of both and the [n] block of each row."""
        if len(candidate) != len(champion) or len(blocks) != len(truth.labels):
            raise ValueError(
                f"candidate, champion and blocks are about {len(candidate)}, {len(champion)} and"
                f" {len(blocks)} rows; they must be the same rows"
            )
        own, rival = judged(truth, candidate), judged(truth, champion)
        return cls(own, rival, Resampler(own.units(blocks), samples, seed))

    def loss_difference(self) -> Interval:
        """Mean loss of the candidate minus the champion's; below zero, the candidate is better."""
        gap = self.candidate.losses() - self.champion.losses()
        draws = self.resampler.totals(np.stack([gap, np.ones(len(gap))], axis=1))
        return interval(float(gap.mean()), draws[:, 0] / draws[:, 1])

    def differences(self, metrics: Sequence[MetricName]) -> dict[MetricName, Difference]:
        """The candidate's minus the champion's, of those metrics that both have."""
        if not metrics:
            return {}
        points, rival_points = self.candidate.points(), self.champion.points()
        draws, rival_draws = (m.draws(self.resampler) for m in (self.candidate, self.champion))
        return {
            name: _difference(points[name], rival_points[name], draws[name], rival_draws[name])
            for name in metrics
            if name in points and name in rival_points
        }


def _difference(
    value: float, rival: float, draws: np.ndarray, rival_draws: np.ndarray
) -> Difference:
    absolute = interval(value - rival, draws - rival_draws)
    if rival == 0:
        return Difference(absolute=absolute, relative=None)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = (draws - rival_draws) / np.abs(rival_draws)
    return Difference(absolute=absolute, relative=interval((value - rival) / abs(rival), shares))
