"""The block bootstrap: resample whole blocks of rows, and get an interval for any statistic.

A draw is a vector of how often each block was taken, so that all draws of a sum are one product.
"""

from collections.abc import Iterator

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
        self._samples = samples
        self._seed = seed

    def totals(self, values: np.ndarray) -> np.ndarray:
        """[samples, m] sums over the drawn rows of ``values`` [n, m]."""
        sums = np.stack(
            [np.bincount(self.block, weights=v, minlength=self.blocks) for v in values.T], axis=1
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


def _chunks(total: int, size: int) -> Iterator[int]:
    for start in range(0, total, size):
        yield min(size, total - start)
