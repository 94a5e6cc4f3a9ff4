"""Reads the labelled rows of a split one partition at a time, so they are never all in memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl


@dataclass(frozen=True)
class Part:
    """Rows that are read together: those of a partition."""

    rows: pl.LazyFrame
    source: str | None = None
    """The version of the table that these are the labelled rows of; None: of no table alone."""

    @cached_property
    def count(self) -> int:
        """How many rows there are."""
        return self.rows.select(pl.len()).collect().item()


@dataclass(frozen=True)
class SplitRows:
    """The rows of all parts, in their order."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, frame: pl.DataFrame) -> "SplitRows":
        """Rows that are in memory."""
        return cls((Part(frame.lazy()),))

    def __len__(self) -> int:
        return sum(part.count for part in self.parts)

    def each(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Read these columns, one part of the split after the other."""
        for part in self.parts:
            yield part.rows.select(columns).collect()

    def column(self, name: str) -> pl.Series:
        """One column of all rows: for what needs it whole, and no other beside it."""
        return pl.concat(frame[name] for frame in self.each([name]))

    def every(self, step: int, columns: Sequence[str]) -> pl.DataFrame:
        """Read these columns of each ``step``-th row, from the first on."""
        taken, passed = list[pl.DataFrame](), 0
        for frame in self.each(columns):
            taken.append(frame.gather_every(step, -passed % step))
            passed += len(frame)
        return pl.concat(taken)
