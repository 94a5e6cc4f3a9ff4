"""A candidate against the champion on the same rows: paired differences, from the same draws."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ml_assets.assets.evaluation_report.bootstrap import Resampler, Variance, student
from ml_assets.assets.evaluation_report.metrics.metrics import ScoredPredictions, judged
from ml_assets.assets.evaluation_report.rows import Holdout, Truth
from ml_assets.errors import counted
from ml_assets.spec.gates import LOSS_OF, AgainstChampion, MetricName
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import ChampionComparison, Difference, Interval, SeedSpread


@dataclass(frozen=True)
class ChampionScores:
    """The champion's predictions on the candidate's holdout, or why there are none."""

    digest: str
    predictions: np.ndarray | None
    reason: str
    """Why it cannot be compared; empty where it can."""


def compare(
    spec: PipelineSpec,
    holdout: Holdout,
    predictions: np.ndarray,
    champion: ChampionScores,
    seeds: SeedSpread | None = None,
) -> ChampionComparison:
    """The candidate's [n, outputs] predictions against the champion's, on the holdout's rows.

    Args:
        seeds: how much models differ that were trained alike; widens the intervals.
    """
    scores, reason = champion.predictions, champion.reason
    if scores is None:
        reason = reason or "it could not be scored on these rows"
    elif scores.shape != predictions.shape:
        reason = f"it predicts {scores.shape[-1]} classes, the candidate {predictions.shape[-1]}"
    if scores is None or reason:
        return ChampionComparison(
            champion=champion.digest,
            comparable=False,
            reason=reason,
            loss=LOSS_OF[spec.label.task],
            loss_difference=None,
            metrics={},
        )
    samples, seed = spec.evaluation.bootstrap_samples, spec.training.seed
    pair = Pair.of(holdout.truth, predictions, scores, holdout.blocks, samples, seed)
    champion_gates = [gate for gate in spec.gates if isinstance(gate, AgainstChampion)]
    asked: list[MetricName] = [gate.metric for gate in champion_gates if gate.metric is not None]
    known = pair.resampler.blocks > 1  # one row, one query: it has no spread, and it shows nothing
    differences = pair.differences(asked, seeds) if known else {}
    return ChampionComparison(
        champion=champion.digest,
        comparable=True,
        reason="",
        loss=LOSS_OF[spec.label.task],
        loss_difference=pair.loss_difference(seeds=seeds) if known else None,
        metrics={str(name): value for name, value in pair.champion.points().items()},
        differences={str(name): gap for name, gap in differences.items()},
        seeds=seeds,
    )


@dataclass(frozen=True)
class Pair:
    """Two models on the same rows, resampled together.

    Raises:
        EvidenceError: no rows, or predictions that are none.
    """

    candidate: ScoredPredictions
    champion: ScoredPredictions
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
                f" {counted(len(blocks), 'row')}; they must be the same rows"
            )
        own, rival = judged(truth, candidate), judged(truth, champion)
        return cls(own, rival, Resampler(own.units(blocks), samples, seed))

    def loss_difference(self, *, seeds: SeedSpread | None = None, claims: int = 1) -> Interval:
        """Mean loss of the candidate minus the champion's; below zero, the candidate is better.

        Args:
            seeds: their spread widens the interval.
            claims: how many such intervals are to hold at once.
        """
        gap = self.candidate.losses() - self.champion.losses()
        draws = self.resampler.totals(np.stack([gap, np.ones(len(gap))], axis=1))
        also = of_two_models(seeds, seeds.loss) if seeds else None
        means = draws[:, 0] / draws[:, 1]
        return student(float(gap.mean()), means, self.resampler.blocks, also=also, claims=claims)

    def differences(
        self, metrics: Sequence[MetricName], seeds: SeedSpread | None = None
    ) -> dict[MetricName, Difference]:
        """The candidate's minus the champion's, of those metrics that both have.

        A metric whose spread over the seeds is not known is left out where a spread is given.
        """
        if not metrics:
            return {}
        points, rival_points = self.candidate.points(), self.champion.points()
        draws, rival_draws = (m.draws(self.resampler) for m in (self.candidate, self.champion))
        found: dict[MetricName, Difference] = {}
        for name in metrics:
            if name not in points or name not in rival_points:
                continue
            if seeds is not None and name not in seeds.metrics:
                continue
            also = of_two_models(seeds, seeds.metrics[name]) if seeds else None
            values = (points[name], rival_points[name])
            found[name] = self._difference(values, draws[name], rival_draws[name], also)
        return found

    def _difference(
        self,
        values: tuple[float, float],
        draws: np.ndarray,
        rival_draws: np.ndarray,
        also: Variance | None,
    ) -> Difference:
        (value, rival), blocks = values, self.resampler.blocks
        absolute = student(value - rival, draws - rival_draws, blocks, also=also)
        if rival == 0:
            return Difference(absolute=absolute, relative=None)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = (draws - rival_draws) / np.abs(rival_draws)
        share_of = None if also is None else Variance(also.value / rival**2, also.freedom)
        relative = student((value - rival) / abs(rival), shares, blocks, also=share_of)
        return Difference(absolute=absolute, relative=relative)


def of_two_models(seeds: SeedSpread, deviation: float) -> Variance:
    """Return what chance in the seeds adds to the difference of two models: each brings its own.

    The deviation was seen on rows of one holdout, so it holds some of their chance too: the sum is
    a little too large, never too small.
    """
    return Variance(2 * deviation**2, len(seeds.seeds) - 1)
