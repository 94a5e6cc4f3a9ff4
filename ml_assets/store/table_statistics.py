"""Statistics of a table that add up over partitions, without its rows.

``merge(survey(a), survey(b))`` counts what ``survey(a and b)`` counts, in any order: histograms are
exact by construction, means and variances to the last bits (Chan, Golub and LeVeque, 1979).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import accumulate
from math import frexp, inf, isfinite, log2, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ml_assets.spec.base import Frozen

STATISTICS_FILE = "statistics.json"
BINS = 128
"""Most non-empty bins of a histogram."""
WORDS = 256
"""Most different values of a text column that are counted apart."""
GROUPS = 200
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}|\(missing\)")
SAMPLED = 8
"""Rows of the sample: those with the smallest hash of their key."""
_FINEST = -1000
_STEPS = 12
"""No histogram divides its range in more than 2^12 parts, however few of them hold anything."""

Whole = NDArray[np.int64]
Kind = Literal["number", "time", "span", "text", "other"]


class Histogram(Frozen):
    """Counts of the bins ``[place, place + 1) * 2**level``; only those that hold anything.

    The level is the finest at which at most ``BINS`` of them do, so it follows from the values
    alone: bins of one level are halves of those of the next, and histograms add exactly.
    """

    level: int
    places: tuple[int, ...] = Field(strict=False)
    counts: tuple[int, ...] = Field(strict=False)

    @classmethod
    def of(cls, places: Whole, counts: Whole, level: int) -> "Histogram":
        """The histogram of bins at some level, in any order, as fine as it may be."""
        order = np.argsort(places, kind="stable")
        places, counts = _added(places[order], counts[order])
        while len(places) > BINS:
            places, counts = _added(places >> 1, counts)
            level += 1
        return cls(level=level, places=tuple(places.tolist()), counts=tuple(counts.tolist()))

    def at(self, level: int) -> tuple[Whole, Whole]:
        """Places and counts at a level that is not finer."""
        by = min(level - self.level, 62)  # a shift of all bits is one of the sign
        return np.array(self.places, dtype=np.int64) >> by, np.array(self.counts, dtype=np.int64)

    def edges(self) -> list[tuple[float, float, int]]:
        """(from, to, count) of each bin."""
        width = 2.0**self.level
        pairs = zip(self.places, self.counts, strict=True)
        return [(place * width, (place + 1) * width, count) for place, count in pairs]


class Numbers(Frozen):
    """The finite values of a numeric column; of times, microseconds since 1970."""

    rows: int
    low: float
    high: float
    mean: float
    squares: float
    """Sum of the squared distances from the mean."""
    histogram: Histogram

    @property
    def deviation(self) -> float:
        """Standard deviation of the values."""
        return sqrt(self.squares / self.rows) if self.rows else 0.0

    def quantile(self, share: float) -> float:
        """The value that this share of the values is below, to the width of a bin."""
        wanted = share * self.rows
        edges = self.histogram.edges()
        below = [0, *accumulate(count for _, _, count in edges)]
        for (low, high, count), before in zip(edges, below, strict=False):
            if before + count >= wanted:
                inside = (wanted - before) / count
                return min(max(low + inside * (high - low), self.low), self.high)
        return self.high


class Texts(Frozen):
    """The values of a text column, the most frequent first.

    Beyond ``WORDS`` the counts are a Misra-Gries summary, which merges (Agarwal et al., 2012): each
    is too low by ``short`` at most.
    """

    rows: int
    values: tuple[tuple[str, int], ...] = Field(strict=False)
    different: int
    """Exact where ``short`` is 0; else there are at least so many."""
    short: int = 0

    @classmethod
    def of(cls, counts: Mapping[str, int], rows: int, different: int, short: int) -> "Texts":
        """The summary of counted values."""
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if len(ranked) > WORDS:
            cut = ranked[WORDS][1]
            short += cut
            ranked = [(value, count - cut) for value, count in ranked[:WORDS] if count > cut]
        return cls(rows=rows, values=tuple(ranked), different=different, short=short)


class Column(Frozen):
    """One column."""

    name: str
    type: str
    kind: Kind
    missing: int
    """Null or NaN."""
    infinite: int = 0
    numbers: Numbers | None = None
    texts: Texts | None = None


class Labels(Frozen):
    """The labels of the rows that have one value of one column."""

    value: str
    rows: int
    labelled: int
    sums: tuple[float, ...] = Field(strict=False)
    """The sum of the labels; of classes, how many there are of each."""

    @property
    def rates(self) -> tuple[float, ...]:
        """Mean of the labels; of classes, the share of each; empty where no row has a label."""
        return tuple(total / self.labelled for total in self.sums) if self.labelled else ()


class Grouped(Frozen):
    """Labels by the values of one column."""

    by: str
    groups: tuple[Labels, ...] = Field(strict=False)


class SampledRow(Frozen):
    """One row as text."""

    hash: int
    cells: tuple[str, ...] = Field(strict=False)


class TableStatistics(Frozen):
    """One table, or several partitions of it added up."""

    schema_version: Literal[1] = 1
    rows: int
    columns: tuple[Column, ...] = Field(strict=False)
    key: tuple[str, ...] = Field(strict=False)
    repeated_keys: int
    """Rows whose key an earlier row of their partition has."""
    repeated_rows: int
    """Rows that an earlier one of their partition is equal to in every column."""
    labels: Labels | None = None
    """The labels of all rows; None: the table has none."""
    grouped: tuple[Grouped, ...] = Field(default=(), strict=False)
    sample: tuple[SampledRow, ...] = Field(default=(), strict=False)
    sampled_columns: tuple[str, ...] = Field(default=(), strict=False)


def finest_level(low: float, high: float) -> int:
    """The level at which a histogram of such a range begins to be made coarser.

    Bounded below by what floats can tell apart at this size, so that places are exact integers.
    """
    size = max(abs(low), abs(high))
    exact = frexp(size)[1] - 52 if size else _FINEST
    half = high / 2 - low / 2  # the range itself may be too great for a float
    parts = int(log2(half) // 1) + 2 - _STEPS if half > 0 else _FINEST
    return max(exact, parts, _FINEST)


def merge_all(parts: Iterable[TableStatistics]) -> TableStatistics:
    """All of them added up; at least one."""
    sums: list[
        tuple[int, TableStatistics]
    ] = []  # of 8, 4, 1 parts: few at a time, none added often
    for part in parts:
        whole, size = part, 1
        while sums and sums[-1][0] == size:
            whole, size = _merge(sums.pop()[1], whole), 2 * size
        sums.append((size, whole))
    return _cut(reduce(_merge, (whole for _, whole in sums)))


def _cut(whole: TableStatistics) -> TableStatistics:
    """With the largest groups alone: of several tables at the end, for they may be large in sum."""
    cut = [one.model_copy(update={"groups": largest(one.groups)}) for one in whole.grouped]
    return whole.model_copy(update={"grouped": tuple(cut)})


def _merge(left: TableStatistics, right: TableStatistics) -> TableStatistics:
    names = dict.fromkeys(c.name for c in (*left.columns, *right.columns))
    ours, theirs = ({c.name: c for c in one.columns} for one in (left, right))
    columns = [_merged(ours.get(name), theirs.get(name), left.rows, right.rows) for name in names]
    by = dict.fromkeys(one.by for one in (*left.grouped, *right.grouped))
    sample = sorted((*left.sample, *right.sample), key=lambda row: (row.hash, row.cells))
    same = left.sampled_columns == right.sampled_columns
    return TableStatistics(
        rows=left.rows + right.rows,
        columns=tuple(columns),
        key=left.key,
        repeated_keys=left.repeated_keys + right.repeated_keys,
        repeated_rows=left.repeated_rows + right.repeated_rows,
        labels=_summed(left.labels, right.labels),
        grouped=tuple(_grouped(name, left, right) for name in by),
        sample=tuple(sample[:SAMPLED]) if same else right.sample,
        sampled_columns=right.sampled_columns,
    )


def _merged(left: Column | None, right: Column | None, before: int, after: int) -> Column:
    if left is None or right is None:
        one = left or right
        assert one is not None
        absent = before if left is None else after
        return one.model_copy(update={"missing": one.missing + absent})
    kept = left.kind == right.kind
    return Column(
        name=left.name,
        type=right.type if left.type == right.type else f"{left.type} or {right.type}",
        kind=right.kind if kept else "other",
        missing=left.missing + right.missing,
        infinite=left.infinite + right.infinite,
        numbers=_numbers(left.numbers, right.numbers) if kept else None,
        texts=_texts(left.texts, right.texts) if kept else None,
    )


def bounded(value: float) -> float:
    """The value; 0 where it is infinite: sums of the greatest floats are, and no JSON holds it."""
    return value if isfinite(value) else 0.0


def _squared(value: float) -> float:
    try:
        return value**2
    except OverflowError:
        return inf


def _numbers(left: Numbers | None, right: Numbers | None) -> Numbers | None:
    if left is None or right is None:
        return left or right
    low, high = min(left.low, right.low), max(left.high, right.high)
    level = max(left.histogram.level, right.histogram.level, finest_level(low, high))
    both = zip(left.histogram.at(level), right.histogram.at(level), strict=True)
    places, counts = (np.concatenate(pair) for pair in both)
    rows = left.rows + right.rows
    apart = right.mean - left.mean
    return Numbers(
        rows=rows,
        low=low,
        high=high,
        mean=bounded(left.mean + apart * (right.rows / rows)),
        squares=bounded(
            left.squares + right.squares + _squared(apart) * (left.rows * right.rows / rows)
        ),
        histogram=Histogram.of(places, counts, level),
    )


def _texts(left: Texts | None, right: Texts | None) -> Texts | None:
    if left is None or right is None:
        return left or right
    counts = Counter(dict(left.values)) + Counter(dict(right.values))
    short = left.short + right.short
    different = max(left.different, right.different, len(counts))
    return Texts.of(counts, left.rows + right.rows, different, short)


def _summed(left: Labels | None, right: Labels | None) -> Labels | None:
    if left is None or right is None:
        return left or right
    sums = zip(left.sums, right.sums, strict=True)
    return Labels(
        value=left.value,
        rows=left.rows + right.rows,
        labelled=left.labelled + right.labelled,
        sums=tuple(a + b for a, b in sums),
    )


def _grouped(by: str, left: TableStatistics, right: TableStatistics) -> Grouped:
    found: dict[str, Labels] = {}
    for one in (*left.grouped, *right.grouped):
        for group in one.groups if one.by == by else ():
            known = found.get(group.value)
            found[group.value] = group if known is None else _summed(known, group) or group
    return Grouped(by=by, groups=tuple(sorted(found.values(), key=lambda one: one.value)))


def largest(groups: Iterable[Labels]) -> tuple[Labels, ...]:
    """The groups with the most rows, in the order of their values; of days all."""
    ranked = sorted(groups, key=lambda one: (-one.rows, one.value))
    if not all(_DAY.fullmatch(one.value) for one in ranked):
        ranked = ranked[:GROUPS]
    return tuple(sorted(ranked, key=lambda one: one.value))


def _added(places: Whole, counts: Whole) -> tuple[Whole, Whole]:
    """Sorted places, each once, with the sum of its counts."""
    starts = np.flatnonzero(np.diff(places, prepend=places[:1] - 1))
    return places[starts], np.add.reduceat(counts, starts)
