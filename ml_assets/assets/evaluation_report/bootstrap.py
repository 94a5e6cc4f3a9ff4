"""The block bootstrap: resample whole blocks of rows, and get an interval for any statistic.

A draw is a vector of how often each block was taken, so that all draws of a sum are one product.
"""

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from math import sqrt

import numpy as np

from ml_assets.spec.records import Interval

_DENSE_CELLS = 8_000_000
"""Largest [blocks, cells] table that is multiplied at once."""
_CHUNK_CELLS = 4_000_000
"""Largest [draws, ...] array held at once."""


class Resampler:
    """The same draws for every statistic asked of it: comparisons between them are paired.

    Args:
        blocks: [n] the block of each row (a day, say), of any type that sorts.
        samples: number of draws.
        seed: of the generator; equal seeds are equal intervals.

    With a single block there is nothing to resample, and an interval of no width would look like
    certainty: the rows are then resampled instead.
    """

    def __init__(self, blocks: np.ndarray, samples: int, seed: int) -> None:
        if samples < 1:
            raise ValueError(f"samples is {samples}; the bootstrap needs at least 1")
        names, block = np.unique(blocks, return_inverse=True)
        if len(names) < 2:
            block = np.arange(len(blocks))
        self.block = np.asarray(block, dtype=np.int64).reshape(-1)
        self.blocks = int(self.block.max()) + 1
        self._names = names
        self._samples = samples
        self._seed = seed

    def sharing(self, blocks: np.ndarray) -> "Resampler":
        """The same draws of the same blocks, for some of the rows only: both stay paired.

        Args:
            blocks: [m] the block of each of those rows.
        """
        if len(self._names) < 2:
            raise ValueError("rows of a single block have no blocks to share")
        shared = copy(self)
        shared.block = np.searchsorted(self._names, blocks)
        return shared

    def totals(self, values: np.ndarray) -> np.ndarray:
        """[samples, m] sums over the drawn rows of ``values`` [n, m]."""
        return self.totals_of(values.T)

    def totals_of(self, columns: Iterable[np.ndarray]) -> np.ndarray:
        """The same of m columns [n] that come one by one, so that only one is held."""
        sums = np.stack(
            [np.bincount(self.block, weights=v, minlength=self.blocks) for v in columns], axis=1
        )
        return np.concatenate([counts @ sums for counts in self._draws(self.blocks)])

    def histograms(self, cell: np.ndarray, cells: int) -> Iterator[np.ndarray]:
        """Chunks of [draws, cells]: how many drawn rows fell in each cell; ``cell`` is [n] ints."""
        if self.blocks * cells <= _DENSE_CELLS:
            flat = np.bincount(self.block * cells + cell, minlength=self.blocks * cells)
            table = flat.reshape(self.blocks, cells).astype(np.float64)
            for counts in self._draws(max(self.blocks, cells)):
                yield counts @ table
            return
        for counts in self._draws(max(self.blocks, cells)):
            rows = [np.bincount(cell, weights=c[self.block], minlength=cells) for c in counts]
            yield np.stack(rows)

    def _draws(self, width: int) -> Iterator[np.ndarray]:
        """Chunks of [draws, blocks]: how often each block was taken."""
        rng = np.random.default_rng(self._seed)
        for size in _chunks(self._samples, max(1, _CHUNK_CELLS // width)):
            taken = rng.integers(0, self.blocks, size=(size, self.blocks))
            taken += np.arange(size)[:, None] * self.blocks
            counts = np.bincount(taken.reshape(-1), minlength=size * self.blocks)
            yield counts.reshape(size, self.blocks).astype(np.float64)


def interval(value: float, draws: np.ndarray) -> Interval:
    """The 95% percentile interval of ``draws``, widened where needed to hold ``value``.

    Draws in which the statistic is undefined (NaN: one class only) are left out.
    """
    defined = draws[np.isfinite(draws)]
    low, high = np.percentile(defined, [2.5, 97.5]) if len(defined) else (value, value)
    return Interval(value=float(value), low=float(min(low, value)), high=float(max(high, value)))


@dataclass(frozen=True)
class Variance:
    """An estimated variance and the degrees of freedom that it was estimated with."""

    value: float
    freedom: float


def student(
    value: float,
    draws: np.ndarray,
    blocks: int,
    *,
    also: Variance | None = None,
    claims: int = 1,
) -> Interval:
    """The 95% interval of Student's t around ``value``, lengthened where the draws are skewed.

        t = t(1 - 0.025 / claims; f), e = sqrt(b / (b - 1) * var(draws) + v)
        from value - e * (t + s) to value + e * t, or the other way round

    Percentiles of the draws are too narrow for few blocks: they take the variance of b blocks for
    b / (b - 1) times it, and the normal's tails for t's (Hesterberg 2015, "What teachers should
    know about the bootstrap"); f = b - 1, for the blocks count and not the rows. With a second
    variance v of g degrees of freedom, f is Welch's and Satterthwaite's
    (u + v)^2 / (u^2 / (b - 1) + v^2 / g), u being the first.

    A symmetric interval is too short on the side of rare large values: a few days on which one
    model is far worse. There s = k (2 t^2 + 1) / 6 is added, k the skewness of the value's
    distribution (Johnson 1978; Hall 1992, "The bootstrap and Edgeworth expansion", 3.5), by the
    share of the variance that it speaks of. The other side is not shortened.

    Args:
        draws: [samples]; those in which the statistic is undefined (NaN) are left out.
        blocks: b, that the value rests on. With fewer than two nothing is known of its spread: the
            caller must not show that to a gate.
        also: v, of another source of chance that is independent of the blocks.
        claims: how many intervals are to hold at once (Bonferroni).
    """
    defined = draws[np.isfinite(draws)]
    if blocks < 2 or len(defined) < 2:
        return interval(value, draws)
    own = Variance(float(defined.var(ddof=1)) * blocks / (blocks - 1), blocks - 1)
    total = own if also is None else _sum(own, also)
    if total.value == 0:
        return Interval(value=float(value), low=float(value), high=float(value))
    t = _t_quantile(1 - 0.025 / claims, total.freedom)
    skewness = _skewness(defined, blocks) * (own.value / total.value) ** 1.5
    longer = abs(skewness) * (2 * t**2 + 1) / 6
    below, above = (t, t + longer) if skewness > 0 else (t + longer, t)
    error = sqrt(total.value)
    return Interval(
        value=float(value), low=float(value - error * below), high=float(value + error * above)
    )


def _skewness(draws: np.ndarray, blocks: int) -> float:
    """The skewness of the draws; few blocks show it too small (Fisher's G1 over g1 mends that)."""
    deviation = draws.std()
    if deviation == 0 or blocks < 3:
        return 0.0
    seen = float(((draws - draws.mean()) ** 3).mean() / deviation**3)
    return seen * sqrt(blocks * (blocks - 1)) / (blocks - 2)


def _sum(one: Variance, other: Variance) -> Variance:
    total = one.value + other.value
    if total == 0:
        return Variance(0.0, one.freedom)
    parts = one.value**2 / one.freedom + other.value**2 / other.freedom
    return Variance(total, total**2 / parts)


def _t_quantile(probability: float, freedom: float) -> float:
    from scipy.special import stdtrit  # comes with scikit-learn

    return float(stdtrit(freedom, probability))


def _chunks(total: int, size: int) -> Iterator[int]:
    for start in range(0, total, size):
        yield min(size, total - start)
