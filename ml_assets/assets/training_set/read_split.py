"""Reads the labelled rows of a split one partition at a time, so they are never all in memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from ml_assets.errors import WindowError
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training_program import Split


@dataclass(frozen=True)
class Part:
    """Rows that are read together: those of a partition."""

    rows: pl.LazyFrame
    source: str | None = None
    """The version of the table that these are the labelled rows of; None: of no table alone."""

    @cached_property
    def count(self) -> int:
        """Return how many rows there are."""
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


def labelled_rows(
    splits: Mapping[Split, Sequence[Part]], label: LabelSpec
) -> dict[Split, SplitRows]:
    """The rows of each split that can be trained or judged on: those without a label are left out.

    The rows of a ranking are put in the order of their queries, which may lie in several
    partitions: they are one part.

    Raises:
        WindowError: a split has no labelled row.
    """
    found: dict[Split, SplitRows] = {}
    for name, parts in splits.items():
        known = [
            replace(part, rows=part.rows.filter(pl.col(label.column).is_not_null()))
            for part in parts
        ]
        if label.query:
            together = pl.concat(part.rows for part in known)
            known = [Part(together.sort(label.query, maintain_order=True))]
        found[name] = SplitRows(tuple(known))
    empty = [name for name, rows in found.items() if not len(rows)]
    if empty:
        raise WindowError(
            f"The splits {empty} have no row with a label {label.column!r}:"
            " the outcomes have not arrived yet, or the window is too short."
        )
    return found
