"""Freshness: the age of a table's newest row, by the row's own time.

A row from the future does not count: a wrong clock would keep a dead source fresh for ever.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from ml_assets.errors import counted
from ml_assets.spec.automation import duration_text
from ml_assets.spec.sources import FreshnessSpec


@dataclass(frozen=True)
class Newest:
    """The end of a table by its time column, as of a moment."""

    time: datetime | None
    """The time of the newest row that is not from the future; None: there is none."""
    partition: str | None
    """Where that row lies."""
    future: int = 0
    """Rows later than the moment, of the partitions that were looked at."""


@dataclass(frozen=True)
class Freshness:
    """Says whether a source is as recent as declared."""

    fresh: bool
    reason: str
    newest: Newest


def newest_row(table: pl.LazyFrame, column: str, now: datetime) -> tuple[datetime | None, int]:
    """The latest time up to now, and how many rows are later; only the column is read."""
    time = pl.col(column)
    past = time.filter(time <= now).max().alias("newest")
    found = table.select(past, (time > now).sum().alias("future")).collect(engine="streaming")
    newest, future = found.row(0)
    return newest, int(future or 0)


def judge_freshness(newest: Newest, now: datetime, spec: FreshnessSpec) -> Freshness:
    """Hold the newest row to the bound; where there is none, the source is not fresh."""
    future = (
        f" {counted(newest.future, 'row', 'are')} from the future (after {now:%Y-%m-%d %H:%M} UTC)"
        " and do not count: check the clock of the source."
        if newest.future
        else ""
    )
    bound = duration_text(spec.within)
    if newest.time is None:
        said = f"There is no row yet; one of the last {bound} was expected."
        return Freshness(False, said + future, newest)
    age = now - newest.time
    where = f" (partition {newest.partition})" if newest.partition else ""
    said = (
        f"The newest row is of {newest.time:%Y-%m-%d %H:%M} UTC{where}, {_age(age)} ago; one "
        f"within {bound} was expected."
    )
    return Freshness(age <= spec.within, said + future, newest)


def _age(age: timedelta) -> str:
    hours = age.total_seconds() / 3600
    return f"{hours / 24:,.1f} days" if hours >= 48 else f"{hours:,.1f} hours"
