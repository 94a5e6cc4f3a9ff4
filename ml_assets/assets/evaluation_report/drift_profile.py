"""Histograms of columns, period by period, as counts on fixed bins, which add up.

Only the profile of the rows is kept: two periods, or a thousand files, merge by addition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Annotated, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from ml_assets.spec.base import Frozen

QUANTILES = 10
"""Bins of a numeric column between its smallest and largest value, with as many rows each."""
WORDS = 30
"""Categories with a bin of their own, the most frequent first."""
KNOWN = 5_000
"""Most categories that are remembered; of a column with more, new ones are not noticed."""
_EDGE_ROWS = 200_000
"""Rows that quantiles are taken from, evenly spaced, where there are more."""

Counts = NDArray[np.int64]
"""[columns, bins], padded with zeros on the right."""


class NumericBins(Frozen):
    """Bins of a numeric column: below, up to each edge, above, and null."""

    kind: Literal["numeric"] = "numeric"
    name: str
    edges: tuple[float, ...] = Field(strict=False)
    """Ascending. Bin i holds ``edges[i-1] < x <= edges[i]``; the last but one is above all."""

    @property
    def size(self) -> int:
        return len(self.edges) + 2


class CategoryBins(Frozen):
    """Bins of a categorical column: each frequent word, other known words, new ones, and null."""

    kind: Literal["category"] = "category"
    name: str
    words: tuple[str, ...] = Field(strict=False)
    others: tuple[str, ...] = Field(strict=False)
    """Known, and too rare for a bin of their own."""
    open: bool = False
    """There are more words than are remembered: an unknown one is counted with the others."""
    once: int = 0
    """Words of a single row: how much of the next rows is new by chance (Good-Turing)."""

    @property
    def size(self) -> int:
        return len(self.words) + 3


Bins = Annotated[NumericBins | CategoryBins, Field(discriminator="kind")]


class Period(Frozen):
    """One period's rows, as counts."""

    period: str | None
    rows: int
    counts: tuple[tuple[int, ...], ...] = Field(strict=False)
    """The counts of each column, in the order of the bins."""
    alone: tuple[int, ...] = Field(default=(), strict=False)
    """Counts of each column: rows whose word is in no other period of the profile."""


class Profile(Frozen):
    """Columns, period by period."""

    bins: tuple[Bins, ...] = Field(strict=False)
    periods: tuple[Period, ...] = Field(strict=False)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.bins)

    @property
    def rows(self) -> int:
        return sum(period.rows for period in self.periods)


@dataclass(frozen=True)
class BinColumns:
    """Holds what the bins of a profile are, for arithmetic on all columns at once."""

    bins: tuple[Bins, ...]

    @property
    def width(self) -> int:
        return max((one.size for one in self.bins), default=0)

    @property
    def real(self) -> NDArray[np.bool_]:
        """[columns, bins] which cells are bins, and not padding."""
        sizes = np.array([one.size for one in self.bins])
        return np.arange(self.width) < sizes[:, None]

    @property
    def null(self) -> NDArray[np.int64]:
        """[columns] the place of the bin of nulls."""
        return np.array([one.size - 1 for one in self.bins])

    @property
    def new(self) -> NDArray[np.int64]:
        """[columns] the place of the bin of new words; -1 where there is none."""
        places = [one.size - 2 if is_closed(one) else -1 for one in self.bins]
        return np.array(places)

    @property
    def numeric(self) -> NDArray[np.bool_]:
        """[columns] whether the bins have an order."""
        return np.array([isinstance(one, NumericBins) for one in self.bins], dtype=bool)

    def matrix(self, period: Period) -> Counts:
        """[columns, bins] the counts of one period."""
        found = np.zeros((len(self.bins), self.width), dtype=np.int64)
        for row, counts in enumerate(period.counts):
            found[row, : len(counts)] = counts
        return found


def is_closed(bins: Bins) -> bool:
    """Return whether all words of the column are known, so that a new one is noticed."""
    return isinstance(bins, CategoryBins) and not bins.open


def make_profile(
    frames: Mapping[str | None, pl.DataFrame], numeric: Sequence[str], categorical: Sequence[str]
) -> Profile:
    """The profile of some rows, its bins fitted to all of them together.

    Args:
        frames: period -> its rows. They are gone through three times, one period after another, so
            that a mapping may read them as they are asked for.
    """
    spans: dict[str, list[_Span]] = {name: [] for name in numeric}
    tallies: dict[str, list[pl.DataFrame]] = {name: [] for name in categorical}
    for frame in frames.values():
        for name in numeric:
            spans[name].append(_span(_finite(frame[name])))
        for name in categorical:
            tallies[name].append(_tally(frame[name]))
    samples = _samples(frames, spans)
    bins = (
        *(_numeric_bins(name, spans[name], samples[name]) for name in numeric),
        *(_category_bins(name, tallies[name]) for name in categorical),
    )
    periods = [count(frame, bins, period) for period, frame in frames.items()]
    alone = _alone(len(periods), tallies, bins)
    told = [
        one.model_copy(update={"alone": tuple(rows)})
        for one, rows in zip(periods, alone, strict=True)
    ]
    return Profile(bins=bins, periods=tuple(told))


def count(frame: pl.DataFrame, bins: Sequence[Bins], period: str | None) -> Period:
    """Rows of one period on fixed bins; NaN counts as null, infinities as beyond the last edge."""
    return Period(
        period=period,
        rows=len(frame),
        counts=tuple(
            _count_numbers(frame[one.name], one)
            if isinstance(one, NumericBins)
            else _count_words(frame[one.name], one)
            for one in bins
        ),
    )


def labels(bins: Bins) -> tuple[str, ...]:
    """Return what the bins are called."""
    if isinstance(bins, CategoryBins):
        return (*bins.words, "others", "new", "null")
    if not bins.edges:
        return ("any", "null")
    below, *upper = (f"{edge:.4g}" for edge in bins.edges)
    return (f"< {below}", *(f"≤ {edge}" for edge in upper), f"> {(upper or [below])[-1]}", "null")


def merge(periods: Sequence[Period], period: str | None) -> Period:
    """Several periods as one."""
    columns = zip(*(one.counts for one in periods), strict=True)
    return Period(
        period=period,
        rows=sum(one.rows for one in periods),
        counts=tuple(tuple(int(n) for n in np.sum(column, axis=0)) for column in columns),
    )


class _Span(NamedTuple):
    """Finite values of a column in one period."""

    rows: int
    least: float
    most: float


def _span(values: NDArray[np.float64]) -> _Span:
    return _Span(len(values), values.min(initial=np.inf), values.max(initial=-np.inf))


def _samples(
    frames: Mapping[str | None, pl.DataFrame], spans: Mapping[str, Sequence[_Span]]
) -> dict[str, NDArray[np.float64]]:
    """Of each numeric column, finite values that are evenly spaced over all periods."""
    rows = {name: sum(one.rows for one in told) for name, told in spans.items()}
    strides = {name: max(1, ceil(count / _EDGE_ROWS)) for name, count in rows.items()}
    passed = dict.fromkeys(spans, 0)
    found = {name: np.empty(ceil(rows[name] / strides[name])) for name in spans}
    for frame in frames.values() if spans else ():
        for name, stride in strides.items():
            values = _finite(frame[name])
            some = values[-passed[name] % stride :: stride]
            begin = ceil(passed[name] / stride)
            found[name][begin : begin + len(some)] = some
            passed[name] += len(values)
    return found


def _numeric_bins(name: str, spans: Sequence[_Span], sample: NDArray[np.float64]) -> NumericBins:
    if not len(sample):
        return NumericBins(name=name, edges=())
    inner = np.quantile(sample, np.arange(1, QUANTILES) / QUANTILES, method="inverted_cdf")
    below = np.nextafter(min(one.least for one in spans), -np.inf)
    edges = np.unique([below, *inner, max(one.most for one in spans)])
    return NumericBins(name=name, edges=tuple(edges.tolist()))


def _tally(column: pl.Series) -> pl.DataFrame:
    """The words of one period in the column ``word``, and the rows of each in ``count``."""
    words = column.drop_nulls().cast(pl.String).alias("word")
    return words.value_counts().with_columns(pl.col("count").cast(pl.Int64))


def _category_bins(name: str, tallies: Sequence[pl.DataFrame]) -> CategoryBins:
    found = pl.concat(tallies).group_by("word").sum()
    found = found.sort(pl.col("count"), pl.col("word"), descending=[True, False])
    names: list[str] = found["word"].to_list()
    return CategoryBins(
        name=name,
        words=tuple(names[:WORDS]),
        others=tuple(names[WORDS:KNOWN]),
        open=len(names) > KNOWN,
        once=int((found["count"] == 1).sum()),
    )


def _count_numbers(column: pl.Series, bins: NumericBins) -> tuple[int, ...]:
    values = _numbers(column)
    missing = np.isnan(values)
    nulls = int(missing.sum())
    if nulls:
        values = values[~missing]
    places = np.searchsorted(np.array(bins.edges), values, side="left")
    counts = np.bincount(places, minlength=len(bins.edges) + 1)
    return (*counts.tolist(), nulls)


def _count_words(column: pl.Series, bins: CategoryBins) -> tuple[int, ...]:
    found = column.cast(pl.String).value_counts()
    tally: dict[str | None, int] = dict(found.iter_rows())
    nulls = tally.pop(None, 0)
    frequent = [tally.pop(word, 0) for word in bins.words]
    others = sum(tally.pop(word, 0) for word in bins.others)
    unknown = sum(tally.values())
    if bins.open:
        others, unknown = others + unknown, 0
    return (*frequent, others, unknown, nulls)


def _alone(
    periods: int, tallies: Mapping[str, Sequence[pl.DataFrame]], bins: Sequence[Bins]
) -> list[list[int]]:
    """[periods][columns] rows whose word no other period has; 0 where there is one period."""
    alone = [[0] * len(bins) for _ in range(periods)]
    if periods < 2:
        return alone
    for place, one in enumerate(bins):
        if not is_closed(one):
            continue
        told = pl.concat(
            tally.with_columns(pl.lit(number).alias("period"))
            for number, tally in enumerate(tallies[one.name])
        )
        single = told.filter(pl.len().over("word") == 1)
        for number, rows in single.group_by("period").agg(pl.col("count").sum()).iter_rows():
            alone[number][place] = rows
    return alone


def _finite(column: pl.Series) -> NDArray[np.float64]:
    values = _numbers(column)
    return values[np.isfinite(values)]


def _numbers(column: pl.Series) -> NDArray[np.float64]:
    """Its values; null is NaN."""
    return column.cast(pl.Float64).to_numpy()
