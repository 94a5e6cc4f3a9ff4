"""Recognizes the content of text columns: numbers, times, words, and texts for "no value"."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import polars as pl

from ml_assets.assets.raw_snapshot.schema import type_text
from ml_assets.assets.raw_snapshot.text_values import PLAINLY, TextFormat, never_were, parse_text
from ml_assets.errors import SpecError, counted, quoted, visible
from ml_assets.spec.leaks import SharedRows
from ml_assets.spec.schema_change import noted
from ml_assets.spec.sources import DType

NO_VALUE = (
    "NA",
    "N/A",
    "n/a",
    "NaN",
    "nan",
    "NAN",
    "NULL",
    "null",
    "None",
    "none",
    "-",
    "--",
    "?",
)
"""Texts that mean "no value" where all other values of a column are numbers or times."""
_STAND_INS = frozenset({-99, *(sign * (10**n - 1) for n in range(3, 7) for sign in (1, -1))})
"""Numbers that instruments write where they measured nothing: -99, -999, 9999, ..."""
_LONE = 0.1
"""The share of values up to which one text among numbers is taken for "no value"."""
_COUNT = re.compile(
    r"(^|_)(id|no|nr|num|number|count|n|code|key|index|row|year|month|day|hour|minute|week|weekday"
    r"|zip|rank|level|grade|version)(_|$)"
)
"""Names of whole numbers that stay whole: counts, codes, and parts of dates."""
_LEADING_ZERO = re.compile(r"^[+-]?0\d")

_LIKE_TIME = re.compile(
    r"^\d{1,4}[-./]\d{1,2}[-./]\d{1,4}(\D|$)|^\d{4}-?W\d{2}|^\d{8}[T ]?\d{4}|^\d{1,2}:\d{2}(\D|$)"
)
_EPOCH = (1e9, 2.2e9)
"""Seconds since 1970, of the years 2001 to 2039."""
_EPOCH_UNITS = {"seconds": 1, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
EXPECTED_TIMES = "Days such as 2024-01-31 or times such as 2024-01-31T12:00:00Z are expected."


@dataclass(frozen=True)
class TypedTable:
    """A table in the types of a spec."""

    frame: pl.DataFrame
    null_values: tuple[str, ...]
    """Texts that mean "no value", the empty one included."""
    zoneless: tuple[str, ...]
    """Columns of times that are written without a zone."""
    notes: tuple[str, ...] = ()
    """What is to be said of values that can be read in two ways."""


def typed_text(raw: pl.DataFrame, written: TextFormat, nulls: Sequence[str] = ()) -> TypedTable:
    """Find the type of each column of text.

    Args:
        raw: [n] strings; null where there is nothing.
        nulls: texts that mean "no value", beside those that are found.

    Raises:
        SpecError: a column holds times that there are not in their zone.
    """
    seen: dict[str, None] = dict.fromkeys(nulls)
    columns: list[pl.Series] = []
    zoneless: list[str] = []
    notes: list[str] = []
    stand_ins = _stand_ins(raw, written)
    for column in raw:
        told = [text for text in (*NO_VALUE, *nulls, *stand_ins) if (column == text).any()]
        rest = column.set(column.is_in(told).fill_null(False), None) if nulls else column
        if lone := _lone_text(rest, written):
            told.append(lone)
            count = counted(int((column == lone).sum()), "value")
            notes.append(f"{column.name}: {quoted(lone)} is taken for no value, {count} of it")
        known = column.set(column.is_in(told).fill_null(False), None) if told else column
        dtype, has_zone = _type_of(known, written)
        if dtype == "string":
            columns.append(column)
            continue
        seen.update(dict.fromkeys(told))
        if dtype == "datetime" and not has_zone:
            zoneless.append(column.name)
        with noted() as told_of:
            columns.append(_typed(known, dtype, written))
        notes += told_of.said
    frame = pl.DataFrame({column.name: column for column in columns})
    texts = [name for name in frame.columns if frame.schema[name] == pl.String]
    frame = frame.with_columns(pl.col(texts).replace(dict.fromkeys(seen, None)))
    return TypedTable(whole_or_not(frame), ("", *seen), tuple(zoneless), tuple(notes))


def _lone_text(column: pl.Series, written: TextFormat) -> str:
    """The one text that comes again and again among numbers; empty: there is none, or several."""
    odd = column.filter(parse_text(column, "float64", written).is_null() & column.is_not_null())
    odd = odd.filter(~odd.is_in(list(NO_VALUE)))
    is_one = len(odd) > 1 and odd.n_unique() == 1 and len(odd) <= _LONE * len(column)
    return str(odd[0]) if is_one else ""


def _stand_ins(raw: pl.DataFrame, written: TextFormat) -> tuple[str, ...]:
    """Texts of numbers that mean "no value" in every column of numbers that holds them."""
    found: dict[str, None] = {}
    kept: set[str] = set()
    for column in raw:
        numbers = parse_text(column, "float64", written)
        if numbers.null_count() > column.null_count() + column.is_in(list(NO_VALUE)).sum():
            continue
        odd = numbers.is_in([float(one) for one in _STAND_INS]).fill_null(False)
        told = dict(zip(column.filter(odd), numbers.filter(odd), strict=True))
        rest = numbers.filter(~odd).drop_nulls()
        for text, number in told.items():
            if _is_far(number, rest, column, text):
                found[text] = None
            else:
                kept.add(text)
    return tuple(text for text in found if text not in kept)


def _is_far(number: float, rest: pl.Series, column: pl.Series, text: str) -> bool:
    """It comes more than once, and lies further from the others than they from each other."""
    low, high = rest.min(), rest.max()
    if not (isinstance(low, float) and isinstance(high, float) and (column == text).sum() > 1):
        return False
    return max(low - number, number - high) > high - low


def with_times(frame: pl.DataFrame) -> pl.DataFrame:
    """The columns of text whose values are all times or dates as what they say.

    A database such as SQLite has no type for them.
    """
    found: list[pl.Series] = []
    written = TextFormat("UTC")
    for column in frame:
        text = column.drop_nulls()
        if column.dtype == pl.String and len(text):
            dtype, _ = _time_of(text, written)
            if dtype != "string":
                found.append(_typed(column, dtype, written))
    return frame.with_columns(found)


def odd_texts(frame: pl.DataFrame, written: TextFormat) -> tuple[str, ...]:
    """Return what is said of columns that a few values make text: most are numbers, or days."""
    said: list[str] = []
    for column in frame.select(pl.col(pl.String)):
        text = column.drop_nulls()
        before = len(said)
        readings = {
            "number": parse_text(text, "float64", written),
            "day": parse_text(text.str.head(10), "date", written),
        }
        for kind, read in readings.items():
            odd = text.filter(read.is_null())
            if 0 < len(odd) < len(text) / 2:
                said.append(
                    f"{column.name} is read as text: {quoted(odd[0])} is not a valid {kind}, and"
                    f" {len(text) - len(odd):,} of its {counted(len(text), 'value')} are. If it"
                    " means no value, make the folder again with --null"
                    f" {visible(shlex.quote(odd[0]))}"
                )
        if len(said) == before and (like := _like_times(text, written)):
            said.append(like)
    return tuple(said)


def almost_numbers(values: pl.Series) -> str:
    """What is to be said of a column of text whose values, or most of them, are numbers."""
    text = values.drop_nulls()
    numbers = text.cast(pl.Float64, strict=False).is_not_null()
    count = int(numbers.sum())
    if count == len(text):
        return f"its numbers are text, {text[0]!r} for one: cast them in features.py if size counts"
    if count <= len(text) / 2:
        return ""
    first = text.filter(~numbers)[0]
    return f"{count:,} of {len(text):,} are numbers, the first other is {first!r}"


def unread_time(text: pl.Series, written: TextFormat) -> str:
    """The first text that is neither a time nor a day, and how many are not; empty: each is one."""
    read = replace(written, zone=written.zone or "UTC")
    odd = text.filter(
        parse_text(text, "datetime", read).is_null() & parse_text(text, "date", read).is_null()
    )
    if odd.is_empty():
        return ""
    return (
        f"{len(odd):,} of {counted(len(text), 'value')} cannot be read as times,"
        f" {quoted(odd[0])} for one"
    )


def _like_times(text: pl.Series, written: TextFormat) -> str:
    """What is said of a text column whose values look like times, most of them; else nothing."""
    alike = text.str.contains(_LIKE_TIME.pattern)
    odd = (
        unread_time(text, written) or f"{quoted(text[0])} beside {quoted(text[-1])}"
        if len(text)
        else ""
    )
    if not odd or alike.sum() <= len(text) / 2:
        return ""
    return f"{text.name} looks like times, and is read as text: {odd}. {EXPECTED_TIMES}"


def epochs(frame: pl.DataFrame) -> tuple[str, ...]:
    """What is said of columns of numbers that may be times: seconds since 1970, or parts of one."""
    said: list[str] = []
    for column in frame.select(pl.col(pl.Int64, pl.Float64)):
        known = column.drop_nulls()
        low, high = known.min(), known.max()
        for unit, scale in _EPOCH_UNITS.items():
            if low is None or len(known) < 2 or known.n_unique() < len(known) / 2:
                continue
            if scale * _EPOCH[0] <= low and high < scale * _EPOCH[1] and (known % 1 == 0).all():
                said.append(
                    f"{column.name} may be times, as {unit} since 1970, and is read as numbers."
                    f" {EXPECTED_TIMES}"
                )
    return tuple(said)


def whole_or_not(frame: pl.DataFrame) -> pl.DataFrame:
    """Whole numbers as numbers with a fraction, which they may have tomorrow.

    Counts and codes stay whole, by their names, and so does what tells every row from the others.
    """
    measured = [
        name
        for name, dtype in frame.schema.items()
        if dtype.is_integer() and not is_count(frame[name])
    ]
    return frame.with_columns(pl.col(measured).cast(pl.Float64))


def is_count(values: pl.Series) -> bool:
    """Return whether whole numbers are counts or codes: by name, or as no two are the same."""
    if _COUNT.search(re.sub(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z]+", "_", values.name).lower()):
        return True
    return not values.null_count() and len(values) > 1 and values.n_unique() == len(values)


def _type_of(values: pl.Series, written: TextFormat) -> tuple[DType, bool]:
    """The type of a column's values, and whether its times are written with their zone."""
    text = values.drop_nulls()
    if text.is_empty() or text.str.contains(_LEADING_ZERO.pattern).any():
        return _time_of(text, written) if not text.is_empty() else ("string", True)
    if _is(text, "int64"):
        return "int64", True
    if _is(text, "float64", written):
        return "float64", True
    if _is(text, "boolean"):
        return "boolean", True
    return _time_of(text, written)


def _time_of(text: pl.Series, written: TextFormat) -> tuple[DType, bool]:
    if _is(text, "date", written):
        return "date", True
    if _is(text, "datetime", replace(written, zone=None)):
        return "datetime", True
    return ("datetime", False) if _are_local(text, written) else ("string", True)


def _are_local(text: pl.Series, written: TextFormat) -> bool:
    """Whether they are times without a zone.

    Raises:
        SpecError: they are, but for some that their zone went over.
    """
    unread = parse_text(text, "datetime", written).is_null()
    if never_were(text, unread, written)[0].sum() < unread.sum():
        return False
    if unread.any():
        typed = type_text(text.to_frame(), {text.name: "datetime"}, written)
        told = typed.problems(lambda _: "the table")
        raise SpecError(f"{told[0]}. Name the zone by --timezone, or leave these rows out.")
    return True


def _typed(values: pl.Series, dtype: DType, written: TextFormat) -> pl.Series:
    return type_text(values.to_frame(), {values.name: dtype}, written).frame[values.name]


def _is(text: pl.Series, dtype: DType, written: TextFormat = PLAINLY) -> bool:
    return not type_text(text.to_frame(), {text.name: dtype}, written).bad


_FEWEST = 5
"""So many equal rows prove nothing, as for the guard of the training set."""
_CHANCE_ERRORS = 3.0
"""Standard errors that chance may be off by."""


def count_copies(frame: pl.DataFrame, features: Sequence[str], label: str) -> int:
    """Return how many labelled rows repeat the features and the label of a row before them.

    0 where they are few, or no more than chance explains, as if the columns were independent of
    each other: the guard ``no_shared_rows`` lets these pass.
    """
    rows = frame.filter(pl.col(label).is_not_null()).select(*features, label)
    repeated = rows.is_duplicated()
    copies = len(rows) - rows.n_unique() if len(rows) else 0
    if not features or copies <= _FEWEST:
        return 0
    others = pl.repeat(float(len(rows)), len(rows), eager=True)
    for column in rows.columns:
        share = (pl.len().over(column) - 1) / (len(rows) - 1)
        others = others * rows.select(share).to_series()
    chance = float(1 - (-others).exp().mean())  # pyright: ignore[reportOperatorIssue]
    chance += _CHANCE_ERRORS * sqrt(max(chance * (1 - chance), 0.0) / len(rows))
    beyond = float(repeated.mean() or 0.0) - chance  # pyright: ignore[reportArgumentType]
    return copies if beyond > SharedRows().at_most else 0
