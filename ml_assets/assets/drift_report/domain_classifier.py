"""A classifier that tries to distinguish new rows from training rows: drift that no single column
shows.

A ridge logistic regression on all columns together (their squares, nulls and frequent words too),
fitted to one half of the rows and judged on the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.drift_report.columns import FEWEST_PERIODS, SPREADS
from ml_assets.assets.drift_report.findings import ALL_COLUMNS, Cause, Finding, Measure
from ml_assets.assets.evaluation_report.drift_profile import Bins, NumericBins

ROWS = 2000
"""Most rows of each side."""
TESTED_PERIODS = 12
"""Most training periods that it is back-tested on, evenly spaced."""
_WORDS = 8
_CLIP = 4.0
_RIDGE = 10.0
_STEPS = 12

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Domain:
    """The training rows as the classifier sees them, and how well it tells their own periods."""

    bins: tuple[Bins, ...]
    """Without the columns that name the period."""
    reference: Mapping[str | None, pl.DataFrame]
    """Rows of each training period that has any."""
    excess: float
    """Highest AUC above one half to expect of a period like those, more than by chance."""
    alpha: float
    floor: float

    @classmethod
    def of(
        cls,
        bins: Sequence[Bins],
        reference: Mapping[str | None, pl.DataFrame],
        alpha: float,
        floor: float,
    ) -> "Domain":
        """Back-tested: every training period against the others.

        Args:
            reference: period -> rows.
            alpha: chance of an alarm on unchanged data.
            floor: the smallest AUC that matters.
        """
        held = {period: frame for period, frame in reference.items() if len(frame)}
        bare = cls(tuple(bins), held, 0.0, alpha, floor)
        periods = list(held)
        if len(periods) < FEWEST_PERIODS or not bins:
            return bare
        every = -(-len(periods) // TESTED_PERIODS)
        roots = [bare._root(period) for period in periods[::every]]
        return replace(bare, excess=_prediction(roots, alpha))

    def judge(self, new: pl.DataFrame, season: pl.DataFrame | None) -> Finding | None:
        """Return how well new rows are told from training rows; None: nothing tells them."""
        if not self.bins or not self.reference or len(new) < 2 * _STEPS:
            return None
        sample = self._sample()
        auc, bound = self._against(new, sample)
        beside = None
        if season is not None and len(season):
            beside = self._against(new, evenly(season, ROWS))
        by_chance = self._by_chance(new, sample)
        because: Cause = "periods" if self.excess > by_chance else "chance"
        measure = Measure(
            statistic="auc",
            value=auc,
            bound=bound,
            because="effect" if bound <= self.floor else because,
            seasonal=beside,
        )
        return Finding(kind="domain", column=ALL_COLUMNS, measures=(measure,))

    def _against(self, new: pl.DataFrame, reference: pl.DataFrame) -> tuple[float, float]:
        taken = evenly(new, ROWS)
        found = auc_between(taken, reference, self.bins)
        by_chance = self._by_chance(new, reference)
        return found, min(max(self.floor, 0.5 + float(np.hypot(by_chance, self.excess))), 1.0)

    def _by_chance(self, new: pl.DataFrame, reference: pl.DataFrame) -> float:
        """How far above one half chance takes the AUC."""
        return _normal(self.alpha) * _deviation(min(len(new), ROWS), len(reference))

    def _root(self, period: str | None) -> float:
        """A training period's AUC above one half, chance taken off."""
        new = evenly(self.reference[period], ROWS)
        rest = self._sample(without=period)
        above = auc_between(new, rest, self.bins) - 0.5
        return sqrt(max(above * abs(above) - _deviation(len(new), len(rest)) ** 2, 0.0))

    def _sample(self, without: str | None = "") -> pl.DataFrame:
        """Rows of all periods alike, without one of them."""
        kept = [frame for period, frame in self.reference.items() if period != without]
        share = max(1, ROWS // len(kept))
        return pl.concat([evenly(frame, share) for frame in kept], how="vertical_relaxed")


def evenly(frame: pl.DataFrame, most: int) -> pl.DataFrame:
    """Rows of a table, evenly spaced and at most so many: the same ones at every call."""
    if len(frame) <= most:
        return frame
    places = np.linspace(0, len(frame) - 1, most).astype(np.int64)
    return frame[places]


def auc_between(new: pl.DataFrame, reference: pl.DataFrame, bins: Sequence[Bins]) -> float:
    """ROC AUC of telling new rows from the reference, each half judged by the other's fit."""
    together = pl.concat(
        [part.select(one.name for one in bins) for part in (new, reference)],
        how="vertical_relaxed",
    )
    inputs = _inputs(together, bins)
    is_new = np.arange(len(together)) < len(new)
    half = np.arange(len(together)) % 2 == 0
    found = [
        _auc(inputs[side] @ _fit(inputs[~side], is_new[~side]), is_new[side])
        for side in (half, ~half)
    ]
    return float(np.mean(found))


def _inputs(frame: pl.DataFrame, bins: Sequence[Bins]) -> Floats:
    """[rows, inputs]: numbers, their squares and nulls; the frequent words."""
    parts: list[Floats] = [np.ones(len(frame))]
    for one in bins:
        column = frame[one.name]
        if isinstance(one, NumericBins):
            values = column.cast(pl.Float64).to_numpy()
            missing = ~np.isfinite(values)
            mean, std = _moments(values[~missing])
            scaled = np.clip(np.where(missing, 0.0, (values - mean) / std), -_CLIP, _CLIP)
            parts += [scaled, scaled**2 - 1]
            if missing.any():
                parts.append(missing.astype(np.float64))
        else:
            words = column.cast(pl.String)
            parts += [
                (words == word).fill_null(False).to_numpy().astype(np.float64)
                for word in one.words[:_WORDS]
            ]
            unknown = words.is_in([*one.words, *one.others]).fill_null(True)
            parts.append((~unknown).to_numpy().astype(np.float64))
    return np.stack(parts, axis=1)


def _moments(values: Floats) -> tuple[float, float]:
    if not len(values):
        return 0.0, 1.0
    low, high = np.quantile(values, [0.01, 0.99])  # one wild value is no scale
    kept = np.clip(values, low, high)
    return float(kept.mean()), float(kept.std()) or 1.0


def _fit(inputs: Floats, is_new: NDArray[np.bool_]) -> Floats:
    """Weights of a ridge logistic regression, by Newton's steps; both sides count alike."""
    weight = np.where(is_new, 0.5 / max(is_new.sum(), 1), 0.5 / max((~is_new).sum(), 1))
    weight = weight * len(is_new)
    ridge = _RIDGE * np.eye(inputs.shape[1])
    ridge[0, 0] = 1e-6
    beta = np.zeros(inputs.shape[1])
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(inputs @ beta, -30, 30)))
        slope = inputs.T @ (weight * (is_new - chance)) - ridge @ beta
        curve = (inputs * (weight * chance * (1 - chance))[:, None]).T @ inputs + ridge
        step = np.linalg.solve(curve, slope)
        beta = beta + step
        if np.abs(step).max() < 1e-4:
            break
    return beta


def _auc(scores: Floats, is_new: NDArray[np.bool_]) -> float:
    """Mann-Whitney's, ties counted half."""
    from scipy.stats import rankdata

    news = int(is_new.sum())
    olds = len(is_new) - news
    if not news or not olds:
        return 0.5
    above = rankdata(scores)[is_new].sum() - news * (news + 1) / 2
    return float(above / (news * olds))


def _deviation(new: int, reference: int) -> float:
    """The standard deviation of the AUC of equal distributions."""
    return sqrt((new + reference + 1) / (12 * new * reference))


def _normal(alpha: float) -> float:
    from scipy.stats import norm

    return float(norm.isf(alpha))


def _prediction(roots: Sequence[float], alpha: float) -> float:
    """A bound for one more of the kind: mean + t sd sqrt(1 + 1/P)."""
    from scipy.stats import t

    values, count = np.array(roots), len(roots)
    times = min(float(t.isf(alpha, count - 1)), SPREADS)
    return float(values.mean() + times * values.std(ddof=1) * sqrt(1 + 1 / count))
