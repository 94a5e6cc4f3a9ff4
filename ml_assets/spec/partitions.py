"""Time partitions: how a spec declares them, their keys, and the span of time each one covers."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator

from ml_assets.errors import visible
from ml_assets.spec.base import Frozen, Timezone


class PartitionsSpec(Frozen):
    """Divides the data stages into partitions of time. ``none``: every source is read whole."""

    cadence: Literal["none", "hourly", "daily", "weekly", "monthly"] = "none"
    start: Annotated[date, Field(strict=False)] | None = None
    end: Annotated[date, Field(strict=False)] | None = None
    """Exclusive; None: goes on."""
    timezone: Timezone = "UTC"
    day_offset: Annotated[int, Field(ge=0, le=6)] = 0
    """First day of a week: 0 Sunday, 1 Monday, ..."""

    @model_validator(mode="after")
    def _cadence_needs_a_start(self) -> Self:
        if self.cadence != "none" and self.start is None:
            raise ValueError(f"partitions of cadence {self.cadence!r} need a 'start' date")
        if self.start and self.end and self.end <= self.start:
            raise ValueError(
                f"partitions.end {self.end} is not after start {self.start}, so there would be no "
                "partition: set a later 'end', or leave it out"
            )
        return self


@dataclass(frozen=True)
class PartitionWindow:
    """One partition: its key and the half-open span ``[start, end)`` in UTC."""

    key: str
    start: datetime
    end: datetime


def clock_changes(zone: str, first: int, last: int) -> bool:
    """Whether an hour comes twice in a zone, for its clocks go back, in one of these years."""
    months = [(year, month) for year in range(first, last + 1) for month in range(1, 13)]
    return len({datetime(*month, 1, tzinfo=ZoneInfo(zone)).utcoffset() for month in months}) > 1


def windows(spec: PartitionsSpec, until: datetime) -> tuple[PartitionWindow, ...]:
    """All partitions that begin at or after ``spec.start`` and end by ``spec.end`` or ``until``.

    The keys are those of Dagster's time-window partitions of the same cadence and time zone.
    """
    minute = until.replace(second=0, microsecond=0)  # every edge is at a whole one
    return _windows(spec, minute)  # pyright: ignore[reportArgumentType]  a frozen model has a hash


@lru_cache(maxsize=4)  # each partition of a step asks for its own, in the same minute
def _windows(spec: PartitionsSpec, until: datetime) -> tuple[PartitionWindow, ...]:
    zone = ZoneInfo(spec.timezone)
    edge = until if spec.end is None else min(until, datetime.combine(spec.end, time(), zone))
    edges = _edges(spec, zone)
    found: list[PartitionWindow] = []
    start = next(edges, None)
    for end in edges:
        if start is None or end > edge:
            break
        found.append(PartitionWindow(_key(spec, start), start.astimezone(UTC), end.astimezone(UTC)))
        start = end
    return tuple(found)


def first_window(spec: PartitionsSpec) -> PartitionWindow:
    """The partition that comes first, whether or not it is over; the cadence is not ``none``."""
    start, end, *_ = itertools.islice(_edges(spec, ZoneInfo(spec.timezone)), 2)
    return PartitionWindow(_key(spec, start), start.astimezone(UTC), end.astimezone(UTC))


def why_in_no_partition(spec: PartitionsSpec, keys: Sequence[str]) -> tuple[str, ...]:
    """Why files belong to no partition that has ended, in sentences.

    Args:
        keys: what the names of the files say, in order.
    """
    if not keys:
        return ()
    begins = {key: _begin(spec, key) for key in keys}
    days = {key: begin for key, begin in begins.items() if begin and spec.start}
    strange = [key for key in keys if key not in days]
    early = [key for key, begin in days.items() if spec.start and begin < spec.start]
    late = [key for key, begin in days.items() if spec.end and begin >= spec.end]
    coming = [key for key in days if key not in (*early, *late)]
    example = first_window(spec).key
    told = (
        (strange, f"read: no {spec.cadence} partition has this name; the first one is {example}"),
        (early, f"read: partitions.start is {spec.start}"),
        (late, f"read: partitions.end is {spec.end}"),
        (coming, f"read yet: it is not over (partitions.timezone is {spec.timezone})"),
    )
    return tuple(f"[{_named(found)}] is not {why}" for found, why in told if found)


def _begin(spec: PartitionsSpec, key: str) -> date | None:
    """The day on which the partition of a key begins; None where no partition can have it."""
    form = "%Y-%m-%d-%H:%M" if spec.cadence == "hourly" else "%Y-%m-%d"
    try:
        begin = datetime.strptime(key[:16], form).replace(tzinfo=UTC)
    except ValueError:
        return None
    day = begin.date()
    on_edge = begin.minute == 0 if spec.cadence == "hourly" else _first_day(spec, day) == day
    return day if on_edge else None


def _named(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - 1:,} more" if len(keys) > 1 else ""
    return f"{visible(keys[0])}{more}"


def _key(spec: PartitionsSpec, start: datetime) -> str:
    if spec.cadence == "hourly":
        return start.strftime("%Y-%m-%d-%H:%M%z" if start.fold else "%Y-%m-%d-%H:%M")
    return start.strftime("%Y-%m-%d")


def _edges(spec: PartitionsSpec, zone: ZoneInfo) -> Iterator[datetime]:
    if spec.cadence == "none" or spec.start is None:
        return
    if spec.cadence == "hourly":
        instant = datetime.combine(spec.start, time(), zone).astimezone(UTC)
        while True:
            yield instant.astimezone(zone)
            instant += timedelta(hours=1)
    day = _first_day(spec, spec.start)
    while True:
        yield datetime.combine(day, time(), zone)
        day = _next_day(spec, day)


def _first_day(spec: PartitionsSpec, start: date) -> date:
    if spec.cadence == "weekly":
        sunday_based = (start.weekday() + 1) % 7
        return start + timedelta(days=(spec.day_offset - sunday_based) % 7)
    if spec.cadence == "monthly" and start.day != 1:
        return (start.replace(day=1) + timedelta(days=32)).replace(day=1)
    return start


def _next_day(spec: PartitionsSpec, day: date) -> date:
    if spec.cadence == "weekly":
        return day + timedelta(days=7)
    if spec.cadence == "monthly":
        return (day + timedelta(days=32)).replace(day=1)
    return day + timedelta(days=1)
