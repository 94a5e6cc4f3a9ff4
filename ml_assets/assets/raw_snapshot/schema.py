"""Checks a declared schema against a source's data: names first, then every value.

Everything wrong with a table is one error, which names the place of the first bad value of each
column.
"""

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from ml_assets.assets.raw_snapshot.python_values import Accepted, not_accepted, plainly
from ml_assets.assets.raw_snapshot.text_values import (
    PLAINLY,
    TYPES,
    TextFormat,
    beyond_years,
    note_twice,
    parse_text,
    why_unread,
)
from ml_assets.errors import SchemaChanged, SourceError, counted, quoted
from ml_assets.spec.schema_change import changes_in_words, column_changes, note_columns
from ml_assets.spec.sources import DType

Columns = Mapping[str, DType]
Place = Callable[[int], str]
"""Row index -> where a person finds that row, such as ``line 7``."""

_WRITTEN: Mapping[DType, str] = {
    "int64": "a whole number of 64 bits, such as 42",
    "float64": "a finite number, such as 3.14",
    "string": "text",
    "boolean": "true or false",
    "date": "a date written as 2013-01-31",
    "datetime": "a time with its zone, written as 2013-01-31T10:00:00Z",
}
_LISTED = 50
"""Sentences of one message."""
_ONE_BY_ONE = 5
_COMPARED = 100
"""Unknown names that are compared with the declared ones: it takes a while."""
_LONG_NAME = 200
_ROUNDED = "would become another number as float64, which is exact up to 2^53; int64 holds it"
_BEYOND = "is its year in UTC; the years 1 to 9999 are read"


@dataclass(frozen=True)
class Reading:
    """A table as it was read, typed as declared, and the fingerprint of what was read."""

    frame: pl.DataFrame
    receipt: dict[str, Any]
    """Plain JSON: equal when the same content is read again."""


@dataclass(frozen=True)
class _Bad:
    """The first value of a column that is not of its type, and how many more there are."""

    column: str
    row: int
    value: object
    count: int
    all: bool = False
    """No value of the column is of the declared type: it is of another one."""
    why: str = ""
    """What is wrong with it, where it is written as its type is."""


def check_names(found: Sequence[str], declared: Columns, where: str) -> None:
    """Refuse a table whose columns are not exactly the declared ones, in any order.

    Raises:
        SchemaChanged: a column is missing, unknown or there twice; close names are suggested.
    """
    problems = name_problems(found, declared)
    if problems:
        changes = column_changes(found, list(declared))
        said = f" ({changes_in_words(changes)})" if changes else ""
        raise SchemaChanged(
            f"{where} does not have the columns that its source declares{said}:{listed(problems)}\n"
            "Put the columns right at the origin, or change 'columns' of this source in defs.yaml.",
            changes,
        )
    note_columns(found)


def _not_there(names: Sequence[str]) -> list[str]:
    """A sentence for each; one for all where there are many."""
    if len(names) <= _ONE_BY_ONE:
        return [f"column {name!r} is declared but not there" for name in names]
    first = ", ".join(repr(name) for name in names[:_ONE_BY_ONE])
    many = counted(len(names), "column", "are")
    return [f"{many} declared but not there: {first}, ..."]


def name_problems(found: Sequence[str], declared: Columns) -> list[str]:
    """Return what is wrong with a table's column names, in sentences; close names are suggested."""
    counts = Counter(found)
    missing = [name for name in declared if name not in counts]
    unknown = [name for name in counts if name not in declared]
    compared = [name for name in unknown[:_COMPARED] if len(name) <= _LONG_NAME]
    problems: list[str] = []
    gone: list[str] = []
    for name in missing:
        if close := difflib.get_close_matches(name, compared, n=1):
            hint = f"the unknown column {_shown(close[0])} is close: was it renamed?"
            problems.append(f"column {name!r} is declared but not there; {hint}")
        else:
            gone.append(name)
    problems += _not_there(gone)
    for name in unknown:
        candidates = (missing or list(declared)) if name in compared else []
        close = difflib.get_close_matches(name, candidates, n=1)
        hint = f" (closest declared name: {close[0]!r})" if close else ""
        problems.append(f"column {_shown(name)} is there but not declared{hint}")
    twice = sorted(name for name, count in counts.items() if count > 1)
    return problems + [f"column {_shown(name)} is there {counts[name]} times" for name in twice]


@dataclass(frozen=True)
class Typed:
    """The declared columns of a table in their declared order, and what is not of its type."""

    frame: pl.DataFrame
    bad: Sequence[_Bad]
    declared: Columns

    def problems(self, place: Place) -> list[str]:
        """A sentence for each column that holds a value of another type."""
        return [_sentence(bad, self.declared[bad.column], place) for bad in self.bad]

    def required(self, where: str, place: Place) -> pl.DataFrame:
        """The table, if all of it is of its type.

        Raises:
            SchemaChanged: no value of a column is: it is of another type, its source has changed.
            SourceError: a value is not; its place and its column are named.
        """
        if not self.bad:
            return self.frame
        message = (
            f"{where} holds values that are not of the declared "
            f"type:{listed(self.problems(place))}\n"
            "Correct them at the origin, or change 'columns' of this source in defs.yaml (for "
            "CSV, list a text that means no value in 'null_values', give in 'timezone' the zone "
            "of times without one, and in 'dialect' whether the day or the month comes first in "
            "a date)."
        )
        retyped = [bad.column for bad in self.bad if bad.all]
        if retyped:
            raise SchemaChanged(message, {"retyped": retyped})
        raise SourceError(message)


def type_text(frame: pl.DataFrame, declared: Columns, written: TextFormat = PLAINLY) -> Typed:
    """Type a table of strings."""
    typed: list[pl.Series] = []
    problems: list[_Bad] = []
    for name, dtype in declared.items():
        values, bad = _read(frame[name], dtype, written)
        typed.append(values)
        problems += bad
    return Typed(pl.DataFrame(dict(zip(declared, typed, strict=True))), problems, declared)


def _read(text: pl.Series, dtype: DType, written: TextFormat) -> tuple[pl.Series, list[_Bad]]:
    values = parse_text(text, dtype, written)
    bad = values.is_null() & text.is_not_null()
    problems: list[_Bad] = []
    if dtype == "float64":
        bad |= values.is_infinite().fill_null(False)
        values = values.fill_nan(None)
    if dtype == "datetime":
        note_twice(text, values, written)
    for found, why in why_unread(text, bad, dtype, written):
        problems.append(replace(_first_bad(found, text, text.name), why=why))
        bad &= ~found
    if bad.any():
        problems.append(_first_bad(bad, text, text.name))
    return values, problems


def type_values(
    columns: Mapping[str, Sequence[object]],
    declared: Columns,
    accept: Accepted,
) -> Typed:
    """Type a table of Python values, of which each type ``accept``s some."""
    typed: list[pl.Series] = []
    problems: list[_Bad] = []
    for name, dtype in declared.items():
        values = columns[name]
        bad = not_accepted(values, dtype, accept[dtype])
        if not bad and str in accept[dtype] and dtype in ("date", "datetime"):
            series, unread = _read(pl.Series(name, values, pl.String), dtype, PLAINLY)
            typed.append(series)
            problems += unread
        elif not bad:
            typed.append(pl.Series(name, plainly(values, dtype), TYPES[dtype]))
        else:
            there = sum(value is not None for value in values)
            problems.append(_Bad(name, bad[0], values[bad[0]], len(bad), len(bad) == there))
    frame = pl.DataFrame(typed).with_columns(pl.col(pl.Float64).fill_nan(None))
    return Typed(frame, problems, declared)


def from_typed(frame: pl.DataFrame, declared: Columns, where: str) -> pl.DataFrame:
    """Type a table that has types of its own (Parquet); a time without a zone is taken as UTC.

    Raises:
        SchemaChanged: a column's type cannot hold the declared one without loss.
    """
    typed, problems = type_typed(frame, declared)
    if problems:
        wrong = [name for name, dtype in declared.items() if not _fits(frame.schema[name], dtype)]
        raise SchemaChanged(
            f"{where} does not have the types that its source declares:{listed(problems)}\n"
            "Deliver those types, or change 'columns' of this source in defs.yaml.",
            {"retyped": [f"{name} ({frame.schema[name]})" for name in wrong]},
        )
    return typed


def type_typed(frame: pl.DataFrame, declared: Columns) -> tuple[pl.DataFrame, list[str]]:
    """The declared columns of a typed table, cast, and a sentence for each that does not fit."""
    fits = {name: _fits(frame.schema[name], dtype) for name, dtype in declared.items()}
    problems = [
        f"column {name!r} is {frame.schema[name]}, declared as {declared[name]}"
        for name, fit in fits.items()
        if not fit
    ]
    casts = [_cast(frame.schema[n], n, dtype) for n, dtype in declared.items() if fits[n]]
    place: Place = lambda row: f"row {row + 1}"  # noqa: E731  a sentence needs a place
    far = [one for name, fit in fits.items() if fit for one in _beyond_years(frame[name])]
    if far:  # a cast may end in a panic
        problems += Typed(frame, far, declared).problems(place)
        return frame.clear().select(casts), problems
    try:
        typed = frame.select(casts)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        said = (str(error).splitlines() or ["it cannot be converted"])[0]
        problems.append(f"a value is beyond its type: {quoted(said)}")
        return frame.clear().select(casts), problems
    bad = [one for name in typed.columns for one in _not_kept(frame[name], typed[name])]
    return typed, [*problems, *Typed(typed, bad, declared).problems(place)]


def _not_kept(found: pl.Series, typed: pl.Series) -> Iterator[_Bad]:
    """The values of a typed column that are none of the declared type, or become another one."""
    if typed.dtype.is_float():
        where = typed.is_infinite().fill_null(False)
        if where.any():
            yield _first_bad(where, typed, typed.name)
    if typed.dtype.is_float() and found.dtype.is_integer():
        where = typed.cast(found.dtype, strict=False).ne_missing(found)
        if where.any():
            yield replace(_first_bad(where, found, found.name), why=_ROUNDED)


def _beyond_years(found: pl.Series) -> Iterator[_Bad]:
    if isinstance(found.dtype, pl.Date | pl.Datetime) and (where := beyond_years(found)).any():
        yield replace(_first_bad(where, found.dt.year(), found.name), why=_BEYOND)


def _first_bad(bad: pl.Series, text: pl.Series, name: str) -> _Bad:
    row = int(bad.arg_max() or 0)
    count = int(bad.sum())
    return _Bad(name, row, text[row], count, count == len(text) - text.null_count())


def _fits(found: pl.DataType, declared: DType) -> bool:
    match declared:
        case "int64":
            return found.is_integer() and found != pl.UInt64
        case "float64":
            return found.is_numeric()
        case "string":
            return found in (pl.String, pl.Categorical, pl.Enum)
        case "boolean":
            return found == pl.Boolean
        case "date":
            return found == pl.Date
        case "datetime":
            return found == pl.Datetime


def _cast(found: pl.DataType, name: str, declared: DType) -> pl.Expr:
    column = pl.col(name)
    if isinstance(found, pl.Datetime):
        zoned = column.dt.replace_time_zone("UTC") if found.time_zone is None else column
        return zoned.dt.convert_time_zone("UTC").cast(TYPES["datetime"])
    cast = column.cast(TYPES[declared])
    return cast.fill_nan(None) if declared == "float64" else cast


def _sentence(bad: _Bad, dtype: DType, place: Place) -> str:
    shown = _shown(bad.value)
    others = counted(bad.count - 1, "more such value")
    more = f" (and {others})" if bad.count > 1 else ""
    wrong = bad.why or f"is not {dtype}; {dtype} is {_WRITTEN[dtype]}"
    if isinstance(bad.value, bool) and dtype in ("int64", "float64"):
        wrong += ", so true is 1 and false is 0"
    return f"{place(bad.row)}, column {bad.column!r}: {shown} {wrong}{more}"


def _shown(value: object) -> str:
    """A value, or a name that is not declared, as a message quotes it: as long as a person reads.

    Of a file without a header, the names of the columns are values of its first row.
    """
    whole = isinstance(value, str) and len(value) > _LONG_NAME
    shown = repr(str(value)[:_LONG_NAME] if whole else value)
    return quoted(shown if len(shown) <= 60 else f"{shown[:57]}...")


def listed(lines: Sequence[str]) -> str:
    """Sentences as the items of a list, each on a line of its own; of many, the first."""
    more = f"\n  - and {len(lines) - _LISTED:,} more" if len(lines) > _LISTED else ""
    return "".join(f"\n  - {line}" for line in lines[:_LISTED]) + more
