"""Separates rows to publish from rows to keep back, each with its reason.

No row is lost: the input is the clean rows plus the quarantined ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ml_assets.errors import DataRejected, counted

HELD_BACK = "held back"
REASON = "_reason"
"""Column of the quarantine: the checks that a row breaks, or why a sound row is kept back."""


@dataclass(frozen=True)
class Split:
    """A table in two parts."""

    clean: pl.DataFrame
    quarantined: pl.DataFrame
    """The columns of the table, and ``_reason``."""
    rows_in: int
    """Counted apart: what came in."""


def keep_all(table: pl.LazyFrame) -> Split:
    """Part a table of which nothing is kept back."""
    clean = table.collect(engine="streaming")
    none = clean.clear().with_columns(pl.lit(None, pl.String).alias(REASON))
    return Split(clean, none, clean.height)


def split(table: pl.LazyFrame, breaks: Mapping[str, pl.Expr]) -> Split:
    """Keep back the rows that break any check, while the table is read: it is never held whole.

    Args:
        table: the incoming rows.
        breaks: check name -> expression that is true where a row breaks it, never null.
    """
    flags = {f"\0{number}": broken for number, broken in enumerate(breaks.values())}
    reason = _reason(dict(zip(breaks, map(pl.col, flags), strict=True)))
    marked = table.with_columns(**flags).filter(pl.any_horizontal(*flags))
    kept_back = marked.select(*table.collect_schema().names(), reason)
    clean = table.filter(~pl.any_horizontal(*breaks.values()))
    # one after the other: in one query the streaming engine holds a seventh more
    back, rest = (part.collect(engine="streaming") for part in (kept_back, clean))
    return Split(rest, back, table.select(pl.len()).collect(engine="streaming").item())


def withhold(table: pl.LazyFrame, breaks: Mapping[str, pl.Expr], failed: Sequence[str]) -> Split:
    """Keep back every row: those that break a check say which, the others say what failed."""
    held = f"{HELD_BACK}: {', '.join(failed)} failed"
    reason = _reason(breaks) if breaks else pl.lit("").alias(REASON)
    whole = table.collect(engine="streaming")
    marked = whole.with_columns(reason).with_columns(pl.col(REASON).replace("", held))
    return Split(whole.clear(), marked, whole.height)


def check_balance(rows_in: int, clean: pl.DataFrame, quarantined: pl.DataFrame) -> None:
    """Hold an audit to its promise: what came in is what goes out and what is kept back.

    Raises:
        DataRejected: rows were lost or made up on the way.
    """
    if rows_in != clean.height + quarantined.height:
        raise DataRejected(
            f"{counted(rows_in, 'row')} came in, but {clean.height:,} would be published and"
            f" {quarantined.height:,} kept back: rows were lost or made up on the way. Nothing was"
            " published; this is a fault of ml_assets, please report it."
        )


def reason_counts(quarantined: pl.DataFrame) -> dict[str, int]:
    """Check -> rows that it keeps back; a row that breaks two counts for both, most rows first.

    Rows of a table that failed as a whole, and break nothing themselves, count as ``held back``.
    """
    if quarantined.is_empty():
        return {}
    said = pl.col(REASON)
    named = pl.when(said.str.starts_with(HELD_BACK)).then(pl.lit(HELD_BACK)).otherwise(said)
    each = named.alias(REASON).str.split(", ").explode()
    by_reason = quarantined.select(each).group_by(REASON).len()
    return dict(by_reason.sort(["len", REASON], descending=[True, False]).iter_rows())


def _reason(breaks: Mapping[str, pl.Expr]) -> pl.Expr:
    named = [pl.when(broken).then(pl.lit(name)) for name, broken in breaks.items()]
    return pl.concat_str(named, separator=", ", ignore_nulls=True).alias(REASON)
