"""Checks a declared schema against a source's data: names first, then every value.

Everything wrong with a table is one error, which names the place of the first bad value of each
column.
"""

import difflib
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from types import NoneType
from typing import Any

import polars as pl

from ml_assets.assets.raw_snapshot.text_values import (
    PLAINLY,
    TYPES,
    TextFormat,
    never_were,
    note_twice,
    parse_text,
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
_NATIVE: Mapping[DType, type] = {"int64": int, "float64": float, "string": str, "boolean": bool}
"""The Python type that needs no conversion."""
_INT64_EDGE = 2**63
_LARGEST = sys.float_info.max
_LISTED = 50
"""Sentences of one message."""
_ONE_BY_ONE = 5
_COMPARED = 100
"""Unknown names that are compared with the declared ones: it takes a while."""
_LONG_NAME = 200


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
        text = frame[name]
        values = parse_text(text, dtype, written)
        bad = values.is_null() & text.is_not_null()
        if dtype == "float64":
            bad |= values.is_infinite().fill_null(False)
            values = values.fill_nan(None)
        if dtype == "datetime" and written.zone:
            note_twice(text, values, written)
            lost, why = never_were(text, bad, written)
            if why:
                problems.append(replace(_first_bad(lost, text, name), why=why))
                bad &= ~lost
        if bad.any():
            problems.append(_first_bad(bad, text, name))
        typed.append(values)
    return Typed(pl.DataFrame(dict(zip(declared, typed, strict=True))), problems, declared)


def type_values(
    columns: Mapping[str, Sequence[object]],
    declared: Columns,
    accept: Mapping[DType, tuple[type, ...]],
) -> Typed:
    """Type a table of Python values, of which each type ``accept``s some."""
    typed: list[pl.Series] = []
    problems: list[_Bad] = []
    for name, dtype in declared.items():
        values = columns[name]
        bad = _not_accepted(values, dtype, accept[dtype])
        if not bad and str in accept[dtype] and dtype in ("date", "datetime"):
            text = pl.Series(name, values, pl.String)
            series = parse_text(text, dtype)
            unread = series.is_null() & text.is_not_null()
            if unread.any():
                problems.append(_first_bad(unread, text, name))
            typed.append(series)
        elif not bad:
            given = {type(value) for value in values}
            as_is = given <= {NoneType, _NATIVE.get(dtype, NoneType)}
            plain = values if as_is else [_plain(value, dtype) for value in values]
            typed.append(pl.Series(name, plain, TYPES[dtype]))
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
            "Write the file with those types, or change 'columns' of this source in defs.yaml.",
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
    try:
        typed = frame.select(casts)
    except pl.exceptions.PolarsError as error:
        said = (str(error).splitlines() or ["it cannot be converted"])[0]
        problems.append(f"a value is beyond its type: {quoted(said)}")
        return frame.clear().select(casts), problems
    endless = [name for name, dtype in typed.schema.items() if dtype.is_float()]
    bad = [(typed[name].is_infinite().fill_null(False), name) for name in endless]
    infinite = [_first_bad(where, typed[name], name) for where, name in bad if where.any()]
    place: Place = lambda row: f"row {row + 1}"  # noqa: E731  a sentence needs a place
    return typed, [*problems, *Typed(typed, infinite, declared).problems(place)]


def _first_bad(bad: pl.Series, text: pl.Series, name: str) -> _Bad:
    row = int(bad.arg_max() or 0)
    count = int(bad.sum())
    return _Bad(name, row, text[row], count, count == len(text) - text.null_count())


def _not_accepted(values: Sequence[object], dtype: DType, accepted: tuple[type, ...]) -> list[int]:
    """Indices of the values that cannot be this type. Exact types: True is not a number."""
    kinds = {type(value) for value in values} - {NoneType}
    if kinds <= set(accepted) and not (kinds and dtype in ("int64", "float64")):
        return []
    if kinds == {int} and int in accepted and dtype in ("int64", "float64"):
        given: list[Any] = [value for value in values if value is not None]
        if all(_is_in_range(end, dtype) for end in (min(given), max(given))):
            return []
    return [
        row
        for row, value in enumerate(values)
        if value is not None and not (type(value) in accepted and _is_in_range(value, dtype))
    ]


def _is_in_range(value: object, dtype: DType) -> bool:
    if dtype == "int64" and isinstance(value, int):
        return -_INT64_EDGE <= value < _INT64_EDGE
    if dtype == "int64" and isinstance(value, Decimal):
        return value.is_finite() and value == int(value) and _is_in_range(int(value), dtype)
    if dtype == "float64" and isinstance(value, int | float | Decimal):
        return value != value or abs(value) <= _LARGEST  # NaN is unlike itself: it is no value
    return True


def _plain(value: object, dtype: DType) -> object:
    if value is None:
        return None
    if dtype == "float64" and isinstance(value, int | Decimal):
        return float(value)
    if dtype == "int64" and isinstance(value, Decimal):
        return int(value)
    if dtype == "boolean":
        return bool(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return value


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


JSON_VALUES: Mapping[DType, tuple[type, ...]] = {
    "int64": (int,),
    "float64": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "date": (str,),
    "datetime": (str,),
}
"""The JSON values that each type takes."""

SQL_VALUES: Mapping[DType, tuple[type, ...]] = {
    "int64": (int, Decimal),
    "float64": (int, float, Decimal),
    "string": (str,),
    "boolean": (bool, int),
    "date": (date,),
    "datetime": (datetime,),
}
"""The values that each type takes from a database; a time without a zone is taken as UTC."""
