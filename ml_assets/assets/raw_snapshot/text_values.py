"""Values written as text, and the polars type of each declared type.

At the two changes of a clock, local times that never existed or came twice are reported.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

import polars as pl

from ml_assets.errors import counted, quoted
from ml_assets.spec.schema_change import note
from ml_assets.spec.sources import DateOrder, DType, FilesSource

TYPES: Mapping[DType, pl.DataType] = {
    "int64": pl.Int64(),
    "float64": pl.Float64(),
    "string": pl.String(),
    "boolean": pl.Boolean(),
    "date": pl.Date(),
    "datetime": pl.Datetime("us", "UTC"),
}
"""What each declared type is in polars. NaN counts as no value, as it does in the contracts."""
_ZONED = "%Y-%m-%dT%H:%M:%S%.f%:z"
_PLAIN = (
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d",
    "%Y-%m-%dT%I:%M:%S%p",
    "%Y-%m-%dT%I:%M%p",
)
"""Times without a zone, and days, which begin at midnight."""
_ORDERS: Mapping[DateOrder, tuple[str, str]] = {
    "ymd": (r"^(\d{4})[/.](\d{1,2})[/.](\d{1,2})", "$1-$2-$3"),
    "dmy": (r"^(\d{1,2})[/.-](\d{1,2})[/.-](\d{4})", "$3-$2-$1"),
    "mdy": (r"^(\d{1,2})[/.-](\d{1,2})[/.-](\d{4})", "$3-$1-$2"),
}
"""How a day is written otherwise than in ISO 8601, and how that becomes a day of it."""


@dataclass(frozen=True)
class TextFormat:
    """Describes how values are written as text."""

    zone: str | None = None
    """The zone of times that are written without one; None: such a time is none."""
    decimal: Literal[".", ","] = "."
    """Before the fraction of a number."""
    dates: DateOrder = "ymd"
    """What comes first in a day; a year that does is always understood."""

    @classmethod
    def of(cls, source: FilesSource) -> "TextFormat":
        return cls(source.timezone, source.dialect.decimal, source.dialect.dates)


PLAINLY = TextFormat()


def parse_text(text: pl.Series, dtype: DType, written: TextFormat) -> pl.Series:
    """Text as values of a type; null where it is none.

    A local time that came twice is the first of the two.
    """
    values = _parsed(text, dtype, written)
    return values.set(beyond_years(values), None) if dtype in ("date", "datetime") else values


def beyond_years(values: pl.Series) -> pl.Series:
    """[n] the days or times outside the years 1 to 9999 in UTC, which Python does not have."""
    utc = values.dt.convert_time_zone("UTC") if isinstance(values.dtype, pl.Datetime) else values
    return values.is_not_null() & ~utc.dt.year().is_between(1, 9999).fill_null(False)


def _parsed(text: pl.Series, dtype: DType, written: TextFormat) -> pl.Series:
    match dtype:
        case "string":
            return text
        case "boolean":
            words = {"true": True, "false": False}
            return text.str.to_lowercase().replace_strict(
                words, default=None, return_dtype=pl.Boolean
            )
        case "date":
            return _dated(text, written.dates, _days)
        case "datetime":
            return _dated(text, written.dates, lambda iso: _moments(iso, written.zone))
        case "float64" if written.decimal != ".":
            pointed = pl.when(text.str.contains(".", literal=True)).then(None).otherwise(text)
            plain = pl.select(pointed).to_series().str.replace(written.decimal, ".", literal=True)
            return plain.alias(text.name).cast(TYPES[dtype], strict=False)
        case _:
            return text.cast(TYPES[dtype], strict=False)


def clock_times(text: pl.Series, written: TextFormat) -> pl.Series:
    """Return what a clock on the wall showed, of times without a zone; else null."""
    return _dated(text, written.dates, _plain)


def _dated(text: pl.Series, order: DateOrder, read: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Texts read as ISO 8601 and, where that is none, with their days turned into it."""
    values = read(text)
    if values.null_count() == text.null_count():
        return values
    turned = text
    for pattern, day in (_ORDERS["ymd"], _ORDERS[order]):
        turned = turned.str.replace(pattern, day)
    turned = turned.str.replace(r"^([\d-]+),? +", "${1}T")
    return values.fill_null(read(turned.str.replace(r"(?i) ?([ap])\.?m\.?$", "${1}m")))


def _days(iso: pl.Series) -> pl.Series:
    return _whole_years(iso, iso.str.to_date("%Y-%m-%d", strict=False))


def _moments(text: pl.Series, zone: str | None) -> pl.Series:
    iso = text.str.replace(" ", "T", literal=True).str.replace(r"[Zz]$", "+00:00")
    told = iso.str.to_datetime(_ZONED, time_unit="us", time_zone="UTC", strict=False)
    told = _whole_years(iso, told)
    if zone is None:
        return told
    plain = _plain(iso).dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return told.fill_null(plain.dt.convert_time_zone("UTC"))


def _plain(text: pl.Series) -> pl.Series:
    iso = text.str.replace(" ", "T", literal=True)
    values = iso.str.to_datetime(_PLAIN[0], time_unit="us", strict=False)
    for form in _PLAIN[1:]:
        if values.null_count() > text.null_count():
            values = values.fill_null(iso.str.to_datetime(form, time_unit="us", strict=False))
    return _whole_years(iso, values)


def _whole_years(iso: pl.Series, values: pl.Series) -> pl.Series:
    """Without those whose year has fewer than four digits: 23-01-05 is no day of the year 23."""
    early = (values.dt.year() < 1000).fill_null(False)
    if not early.any():
        return values
    short = early & ~iso.str.contains(r"^\d{4}").fill_null(True)
    return values.set(short, None)


def why_unread(
    text: pl.Series, unread: pl.Series, dtype: DType, written: TextFormat
) -> Iterator[tuple[pl.Series, str]]:
    """[n] texts of those that could not be read, and why: written as their type is, they are none.

    No text is told of twice.
    """
    if dtype not in ("date", "datetime") or not unread.any():
        return
    beyond = unread & beyond_years(_parsed(text, dtype, written))
    if beyond.any():
        yield beyond, _BEYOND
    day = text.str.extract(r"^(\d{4}-\d{2}-\d{2})(?:\D|$)")
    no_day = unread & ~beyond & day.is_not_null() & day.str.to_date(strict=False).is_null()
    if no_day.any():
        yield no_day, "names a day that there is not"
    lost, why = never_were(text, unread, written)
    if dtype == "datetime" and why:
        yield lost, why


_BEYOND = (
    "is outside the years 1 to 9999 in UTC; if it stands for no value, leave it out (in CSV, list"
    " it in 'null_values')"
)
_HOUR = timedelta(hours=1)


def never_were(text: pl.Series, unread: pl.Series, written: TextFormat) -> tuple[pl.Series, str]:
    """[n] which texts of those that could not be read are times that their zone went over, and why
    there are no such times; empty where there is none."""
    if written.zone is None or not unread.any():
        return unread & False, ""
    clock = clock_times(text, written)
    there = clock.dt.replace_time_zone(written.zone, ambiguous="earliest", non_existent="null")
    lost = unread & clock.is_not_null() & there.is_null()
    return lost, _why_never(written.zone, clock.filter(lost)[0]) if lost.any() else ""


def _why_never(zone: str, clock: datetime) -> str:
    steady = _steady(zone, clock)
    keeps = f", or name a zone whose clock never changes ({steady})" if steady else ""
    return (
        f"does not exist in {zone}: the clocks went forward over it. Write times with their"
        f" offset, such as +02:00{keeps}"
    )


def note_twice(text: pl.Series, values: pl.Series, written: TextFormat) -> None:
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
        f" {quoted(f'{twice[0]:%Y-%m-%d %H:%M}')} for one: the clocks went back."
        f" {'Each is' if len(twice) > 1 else 'It is'} read as the first of the two. Write times"
        " with their offset, such as +02:00, to say which one is meant."
    )


def _steady(zone: str, near: datetime) -> str:
    """The zone that has the same winter time all year; empty where it is not of whole hours."""
    known = ZoneInfo(zone)
    seasons = (near.replace(month=month, day=1, tzinfo=known) for month in (1, 7))
    offset = min(moment.utcoffset() or timedelta() for moment in seasons)
    return "" if offset % _HOUR else f"Etc/GMT{-(offset // _HOUR):+d}" if offset else "UTC"
