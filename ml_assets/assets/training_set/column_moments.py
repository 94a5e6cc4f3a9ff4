"""Summarizes the numbers of a split, one part at a time: counts, means, deviations, ranges."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from ml_assets.assets.training_set.read_split import SplitRows


@dataclass(frozen=True)
class Moments:
    """The count, mean and squares of one column: NaN is missing, infinities are numbers."""

    rows: int = 0
    nulls: int = 0
    count: int = 0
    """The values that are numbers."""
    average: float = 0.0
    squares: float = 0.0
    """The sum of the squared distances to the mean."""
    low: float | None = None
    high: float | None = None

    @property
    def mean(self) -> float | None:
        return self.average if self.count else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation of a sample; None of fewer than two values."""
        return math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else None

    @property
    def missing(self) -> float:
        """The share of rows without a number."""
        return 1 - self.count / self.rows if self.rows else 0.0

    @property
    def constant(self) -> float | None:
        """The only value; None: there are several, or none."""
        return self.low if self.low == self.high else None

    def plus(self, other: "Moments") -> "Moments":
        """Add the moments of other rows to these (Chan, Golub and LeVeque, 1979)."""
        count = self.count + other.count
        apart = other.average - self.average
        share = other.count / count if count else 0.0
        return Moments(
            self.rows + other.rows,
            self.nulls + other.nulls,
            count,
            self.average + apart * share,
            self.squares + other.squares + apart**2 * self.count * share,
            min(_there(self.low, other.low), default=None),
            max(_there(self.high, other.high), default=None),
        )


def moments(rows: SplitRows, columns: Sequence[str]) -> dict[str, Moments]:
    """Column -> its moments."""
    found = dict.fromkeys(columns, Moments())
    if not columns:
        return found
    for frame in rows.each(columns):
        parts = _of(frame, columns)
        found = {name: found[name].plus(part) for name, part in parts.items()}
    return found


def _of(frame: pl.DataFrame, columns: Sequence[str]) -> dict[str, Moments]:
    numbers = {name: pl.col(name).cast(pl.Float64).fill_nan(None) for name in columns}
    asked = {
        "nulls": [pl.col(name).null_count() for name in columns],
        "count": [number.count() for number in numbers.values()],
        "mean": [number.mean() for number in numbers.values()],
        "variance": [number.var(ddof=0) for number in numbers.values()],
        "low": [number.min() for number in numbers.values()],
        "high": [number.max() for number in numbers.values()],
    }
    told = {what: frame.select(each).row(0) for what, each in asked.items()}
    return {
        name: Moments(
            len(frame),
            told["nulls"][place],
            told["count"][place],
            told["mean"][place] or 0.0,
            (told["variance"][place] or 0.0) * told["count"][place],
            told["low"][place],
            told["high"][place],
        )
        for place, name in enumerate(columns)
    }


def _there(*values: float | None) -> list[float]:
    return [value for value in values if value is not None]
