"""Values written as text, and the polars type of each declared type."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

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
class Written:
    """How values are written as text."""

    zone: str | None = None
    """Of times that are written without one; None: such a time is none."""
    decimal: Literal[".", ","] = "."
    """Before the fraction of a number."""
    dates: DateOrder = "ymd"
    """What comes first in a day; a year that does is always understood."""

    @classmethod
    def of(cls, source: FilesSource) -> "Written":
        return cls(source.timezone, source.dialect.decimal, source.dialect.dates)


PLAINLY = Written()


def parse_text(text: pl.Series, dtype: DType, written: Written = PLAINLY) -> pl.Series:
    """Text as values of a type; null where it is none.

    A local time that came twice is the first of the two.
    """
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


def clock_times(text: pl.Series, written: Written) -> pl.Series:
    """What a clock on the wall showed, of times that are written without a zone; else null."""
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
