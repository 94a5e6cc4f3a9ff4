"""Local times at the two changes of a clock: those that never existed, and those that came
twice."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import polars as pl

from ml_assets.assets.raw_snapshot.text_values import Written, clock_times
from ml_assets.errors import counted
from ml_assets.spec.schema_change import note

_HOUR = timedelta(hours=1)


def never_were(text: pl.Series, unread: pl.Series, written: Written) -> tuple[pl.Series, str]:
    """[n] which texts of those that could not be read are times that their zone went over, and why
    there are no such times; empty where there is none."""
    if written.zone is None or not unread.any():
        return unread & False, ""
    clock = clock_times(text, written)
    lost = unread & clock.is_not_null()
    return lost, _why_never(written.zone, clock.filter(lost)[0]) if lost.any() else ""


def _why_never(zone: str, clock: datetime) -> str:
    steady = _steady(zone, clock)
    keeps = f", or name a zone whose clock never changes ({steady})" if steady else ""
    return (
        f"is no time of {zone}: the clocks went forward over it. Write times with their"
        f" offset, such as +02:00{keeps}"
    )


def note_twice(text: pl.Series, values: pl.Series, written: Written) -> None:
    """Tell of the times that came twice in their zone: each was taken for the first of the two."""
    if written.zone is None:
        return
    clock = values.dt.convert_time_zone(written.zone).dt.replace_time_zone(None)
    once = clock.dt.replace_time_zone(written.zone, ambiguous="null", non_existent="null")
    twice = once.is_null() & values.is_not_null()
    twice = clock_times(text.filter(twice), written).drop_nulls() if twice.any() else clock.clear()
    if twice.is_empty():
        return
    came = "came" if len(twice) > 1 else "comes"
    note(
        f"{counted(len(twice), 'time')} of {text.name!r} {came} twice in {written.zone},"
        f" {twice[0]:%Y-%m-%d %H:%M} for one: the clocks went back."
        f" {'Each is' if len(twice) > 1 else 'It is'} taken for the first of the two. Write times"
        " with their offset, such as +02:00, to say which one is meant."
    )


def _steady(zone: str, near: datetime) -> str:
    """The zone that has the same winter time all year; empty where it is not of whole hours."""
    known = ZoneInfo(zone)
    seasons = (near.replace(month=month, day=1, tzinfo=known) for month in (1, 7))
    offset = min(moment.utcoffset() or timedelta() for moment in seasons)
    return "" if offset % _HOUR else f"Etc/GMT{-(offset // _HOUR):+d}" if offset else "UTC"
