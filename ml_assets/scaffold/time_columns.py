"""Finds when the rows of a table are: the time column, the key with it, and the step between."""

import itertools
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import polars as pl

from ml_assets.assets.raw_snapshot.text_values import TextFormat
from ml_assets.assets.validated_table.contract.proposal import RARE
from ml_assets.errors import SpecError, counted, quoted, visible
from ml_assets.scaffold.column_types import DTYPES
from ml_assets.scaffold.columns import EXPECTED_TIMES, unread_time
from ml_assets.scaffold.find_input import ONE_TABLE, Given, as_one_table

_TIME_NAME = re.compile(r"(^|_)(time|timestamp|date|datetime|day|at|ts|when)($|_)", re.IGNORECASE)
_MOST_KEYS = 12
"""Columns that are tried for a key, by two and by three."""
_SHOWN = 10
"""Columns that a message names."""
_IN_PLACE = 0.95
"""The share of rows that lie in the partition of their file, by the column that says when."""


@dataclass(frozen=True)
class Moments:
    """The times of the rows."""

    time: str
    is_series: bool
    """The time is part of the key: a row for each moment (of each station, shop, ...)."""
    step: timedelta | None
    """From one row to the next, mostly; None: it is no time that one would name."""


def find_time(frame: pl.DataFrame, given: Given, label: str) -> str | None:
    """The column that says when a row is; None: there is none, or several that may be it.

    Raises:
        SpecError: the files are of periods, and no column says when a row is.
    """
    times = [
        name
        for name, dtype in frame.schema.items()
        if name != label and dtype in (pl.Date(), pl.Datetime("us", "UTC"))
        if not frame[name].null_count()
    ]
    if given.keys is not None:
        placed = [(_in_place(frame[name], given), name) for name in times]
        best = max(placed, default=(0.0, ""), key=lambda one: one[0])
        if best[0] < _IN_PLACE:
            raise SpecError(
                f"The files are named by their {_period(given)}, but no column of times agrees with"
                f" it{f'; there are {times}' if times else ': there is none'}. Name the column that"
                " says when a row is by --time COLUMN, and the zone by --timezone ZONE."
            )
        return best[1]
    named = [name for name in times if _TIME_NAME.search(name)]
    moments = [name for name in times if frame.schema[name] != pl.Date()]
    for found in (named, moments):
        if len(found) == 1:
            return found[0]
    return None


def check_time(values: pl.Series, written: TextFormat) -> None:
    """Hold the column that was named or found to times, one in each row.

    Raises:
        SpecError: it holds something else.
    """
    if values.dtype not in (pl.Date(), pl.Datetime("us", "UTC")):
        text = values.drop_nulls().cast(pl.String)
        odd = unread_time(text, written) or f"{quoted(next(iter(text), ''))} for one"
        raise SpecError(
            f"The times {values.name!r} are read as {DTYPES[values.dtype]}: {odd}. {EXPECTED_TIMES}"
        )
    if unknown := values.null_count():
        raise SpecError(
            f"The time {values.name!r} is empty in {unknown} of {counted(len(values), 'row')}:"
            " when is the prediction made there? Fill it, or leave these rows out."
        )


def in_their_partitions(
    frame: pl.DataFrame, time: str, given: Given
) -> tuple[Given, tuple[str, ...]]:
    """Keep the partitions of files whose rows lie in them; else read all files as one table."""
    if given.keys is None:
        return given, ()
    if frame.schema[time] == pl.Date() and given.source.get("format") != "csv":
        return as_one_table(given), (f"{time} holds days, and partitions need times: {ONE_TABLE}",)
    share = _in_place(frame[time], given)
    if share >= _IN_PLACE:
        return given, ()
    said = (
        f"by {time}, {1 - share:.0%} of the rows are not of the {_period(given)} that their file is"
        " named by: the files are read as one table"
    )
    return as_one_table(given), (said,)


def find_key(
    frame: pl.DataFrame, label: str, time: str | None, ahead: timedelta | None
) -> tuple[str, ...]:
    """The fewest columns that tell the rows apart; of a series with its time.

    Raises:
        SpecError: no one, two or three of them do.
    """
    columns = _able(frame, [label, *([time] if time else [])])
    tried = [*_candidates(columns, time, only_series=ahead is not None)]
    if time:  # a numbered store or station is what a series is of; a measured number is no key
        tried += _candidates([*_numbered(frame, label, time), *columns], time, only_series=True)
    for names in tried:
        if names == (time,) and len(repeated_rows(frame, names)) <= RARE * len(frame):
            return names
        if not frame.select(pl.struct(names).is_duplicated().any()).item():
            return names
    names = ", ".join(frame.columns[:_SHOWN])
    more = f" and {counted(frame.width - _SHOWN, 'more column')}" if frame.width > _SHOWN else ""
    raise SpecError(
        "No column tells the rows apart, nor do two or three."
        f"{_copies(frame)}{_nearest(frame, columns)} Name the columns that do by --key"
        f" COLUMN[,COLUMN]; where none do, add one that numbers the rows. The table has"
        f" {names}{more}."
    )


def _copies(frame: pl.DataFrame) -> str:
    """How many rows are whole copies of others, for then no columns can tell them apart."""
    copies = len(frame) - frame.n_unique()
    if not copies:
        return ""
    return (
        f" {counted(copies, 'row', 'repeat')} another one in every column,"
        f" {copies / len(frame):.1%} of all: take the copies out."
    )


def _nearest(frame: pl.DataFrame, columns: Sequence[str]) -> str:
    """The column that does best, and by how much it fails."""
    shared = {name: len(repeated_rows(frame, [name])) for name in columns}
    name = min(shared, key=shared.__getitem__, default="")
    if not name or 2 * shared[name] > len(frame):
        return ""
    return f" The nearest is {name!r}: {share_told(shared[name], len(frame))}."


def share_told(rows: int, of: int) -> str:
    """How many rows share their key with another, and how many may."""
    share = f"{rows / of:.1%} of all, and at most {RARE:.0%} may"
    return f"{counted(rows, 'row', 'share')} it with another, {share}"


def almost_key(
    frame: pl.DataFrame, label: str, time: str | None, found: Sequence[str]
) -> tuple[str, ...]:
    """What is said of a column that would be the key in place of the time, but for a few rows.

    Args:
        found: the key that was found; a person who names one knows why.
    """
    if time is None or found != (time,):
        return ()
    for name in _able(frame, [label, time]):
        shared = len(repeated_rows(frame, [name]))
        if 0 < shared <= RARE * len(frame):
            return (
                f"{name} is nearly a key: {counted(shared, 'row', 'share')} it with another. To"
                f" have it as the key, name it by --key {visible(shlex.quote(name))}: the contract"
                " then keeps these rows back",
            )
    return ()


def _able(frame: pl.DataFrame, others: Sequence[str]) -> list[str]:
    """The columns that can be a key, by their type and as no value is missing."""
    able = (pl.Int64(), pl.String(), pl.Date(), pl.Datetime("us", "UTC"))
    return [
        name
        for name, dtype in frame.schema.items()
        if name not in others and dtype in able and not frame[name].null_count()
    ]


def repeated_rows(frame: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """[n] the keys of the rows that share theirs with another row."""
    keys = frame.select(key)
    return keys.filter(keys.is_duplicated())


def step_of(frame: pl.DataFrame, time: str, key: Sequence[str]) -> timedelta | None:
    """The most frequent time from one row of an entity to its next, if it is whole minutes."""
    entity = [name for name in key if name != time]
    if time not in key:
        return None
    apart = pl.col(time).diff()
    ordered = frame.sort(*entity, time).select((apart.over(entity) if entity else apart).alias("d"))
    steps = ordered["d"].drop_nulls()
    found = steps.mode().sort()[0] if len(steps) else None
    if not isinstance(found, timedelta) or found < timedelta(minutes=1):
        return None
    return None if found % timedelta(minutes=1) else found


def _numbered(frame: pl.DataFrame, label: str, time: str) -> list[str]:
    """The columns of whole numbers each of which is there at most times, the fewest first."""
    times = frame[time].n_unique()
    found = {
        values.name: values.n_unique()
        for values in frame.select(pl.col(pl.Float64))
        if values.name != label and not values.null_count() and (values % 1 == 0).all()
    }
    there = (name for name in found if found[name] * times <= 2 * len(frame))
    return sorted(there, key=found.__getitem__)


def _candidates(
    columns: Sequence[str], time: str | None, *, only_series: bool
) -> Iterable[tuple[str, ...]]:
    alone = [] if only_series else [(name,) for name in columns]
    with_time: list[tuple[str, ...]] = []
    few = columns[:_MOST_KEYS]
    if time:
        pairs = itertools.combinations(few, 2)
        with_time = [(time,), *((name, time) for name in few), *((*two, time) for two in pairs)]
    several = itertools.chain(itertools.combinations(few, 2), itertools.combinations(few, 3))
    return [*alone, *with_time, *(() if only_series else several)]


def _in_place(times: pl.Series, given: Given) -> float:
    """The share of the rows whose time lies in the partition of their file."""
    if given.keys is None or given.calendar is None:
        return 0.0
    if times.dtype != pl.Date():
        times = times.dt.convert_time_zone(given.calendar.zone)
    form, width = {"hourly": ("%Y-%m-%d-%H:00", None), "monthly": ("%Y-%m-01", None)}.get(
        given.calendar.cadence, ("%Y-%m-%d", 7 if given.calendar.cadence == "weekly" else None)
    )
    if width is None:
        return float((times.dt.strftime(form) == given.keys).mean() or 0.0)  # pyright: ignore[reportArgumentType]
    begin = given.keys.str.to_date("%Y-%m-%d")
    days = (times.dt.date() - begin).dt.total_days()
    return float(days.is_between(0, width - 1).mean() or 0.0)  # pyright: ignore[reportArgumentType]


def _period(given: Given) -> str:
    cadence = given.calendar.cadence if given.calendar else ""
    words = {"hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month"}
    return words.get(cadence, "period")
