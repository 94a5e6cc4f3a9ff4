"""Detects time-series features that count rows instead of time, by inserting an empty row.

A row without values, some way back in the history of an entity, changes neither a lag of three
hours nor a mean of a day. A ``shift(3)`` then gives another hour's value, as it does over a gap. A
function that reads only the newest row cannot be distinguished from a look-up of the last known
value.
"""

from dataclasses import dataclass
from datetime import datetime

import polars as pl

from ml_assets.errors import quoted
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.sources import SourceSpec

_NEWEST, _BEFORE = "__newest", "__before"


@dataclass(frozen=True)
class Series:
    """Describes how the rows of a source follow each other."""

    time: str
    """The column of its key that says when."""
    entity: tuple[str, ...]
    """The others: a station, a shop. Empty: all rows are of one."""


def series_of(source: SourceSpec, features: FeaturesSpec) -> Series | None:
    """The series that a source is; None: its key holds no time, so it is none."""
    subject = features.subject
    named = (source.known_at, subject.time if subject else None, features.decision_at)
    times = [name for name in named if name in source.key and source.columns[name] == "datetime"]
    if not times:
        return None
    return Series(times[0], tuple(name for name in source.key if name != times[0]))


def empty_rows(
    landed: pl.LazyFrame, batch: pl.DataFrame, series: Series, moment: datetime
) -> pl.DataFrame:
    """Make a row without values for each entity, between its last two rows but its own.

    Args:
        landed: rows of the source.
        batch: feature rows of one moment, with the source's key.
    """
    entity = list(series.entity)
    past = landed.filter(pl.col(series.time) < moment)
    if entity:
        past = past.join(batch.lazy().select(entity).unique(), on=entity, how="semi")
    time = pl.col(series.time).sort()
    ends = [time.last().alias(_NEWEST), time.slice(-2, 1).first().alias(_BEFORE), pl.len()]
    found = (past.group_by(entity) if entity else past.group_by(pl.lit(0).alias("__one"))).agg(ends)
    between = pl.col(_BEFORE) + (pl.col(_NEWEST) - pl.col(_BEFORE)) / 2
    schema = landed.collect_schema()
    placed = (
        found.filter(pl.col("len") > 1)
        .select(*entity, between.cast(schema[series.time]).alias(series.time))
        .collect()
        .sort(*entity, series.time)
    )
    others = [
        pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
        if name not in placed.columns
    ]
    return placed.with_columns(others).select(schema.names())


def counted_rows(batch: pl.DataFrame, again: pl.DataFrame, spec: FeaturesSpec, at: object) -> str:
    """The first feature that an empty row changes, in words; empty where none does.

    A number that is one more in each row it changes in is how many rows there are: it may be.

    Args:
        again: the rows of the batch, made with the empty row in their history.
        at: when the empty row is.
    """
    key = list(spec.key)
    both = batch.join(again, on=key, how="inner", suffix="__again", maintain_order="left")
    for name in [one for one in (*spec.numeric, *spec.categorical) if one not in key]:
        changed = both.filter(_changes(name, number=name in spec.numeric))
        one_more = pl.col(f"{name}__again") == pl.col(name) + 1
        is_count = name in spec.numeric and changed.select(one_more.fill_null(False).all()).item()
        if changed.is_empty() or is_count:
            continue
        row = changed.row(0, named=True)
        where = quoted(f"({', '.join(str(row[column]) for column in key)})")
        return (
            f"{name!r} of {where} is {quoted(repr(row[name]))}, and"
            f" {quoted(repr(row[f'{name}__again']))} when an empty row is at {at} before it"
        )
    return ""


def _changes(name: str, *, number: bool) -> pl.Expr:
    then, now = pl.col(name), pl.col(f"{name}__again")
    if not number:
        return then.ne_missing(now)
    size = pl.max_horizontal(then.abs(), now.abs(), pl.lit(1.0))
    return then.ne_missing(now) & ~((then - now).abs() <= 1e-9 * size).fill_null(False)
