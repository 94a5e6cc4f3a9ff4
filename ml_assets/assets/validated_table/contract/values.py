"""Values of a contract's JSON as values of a table's columns."""

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import polars as pl

from ml_assets.errors import ContractError

_INT64_EDGE = 2**63
"""Polars takes no larger whole number; a bound beyond it holds or breaks as a float, too."""
_SAID = ("value", "min_value", "max_value")


def without_nan(column: str, schema: pl.Schema) -> pl.Expr:
    """A column in which NaN is a null, as everywhere in a contract."""
    return pl.col(column).fill_nan(None) if schema[column].is_float() else pl.col(column)


def literal(value: Any, dtype: pl.DataType, said_by: str, column: str) -> Any:
    """A JSON value as a value of the column.

    Args:
        said_by: the check, for the message.

    Raises:
        ContractError: it is not one.
    """
    if dtype == pl.Boolean and isinstance(value, bool):
        return value
    if dtype.is_numeric() and isinstance(value, int | float) and not isinstance(value, bool):
        number = _number(value, dtype)
        if number is None:
            raise misfit(value, dtype, said_by, column)
        return number
    if dtype == pl.String and isinstance(value, str):
        return value
    if isinstance(value, str) and dtype.is_temporal():
        try:
            if dtype == pl.Date:
                return date.fromisoformat(value)
            time = datetime.fromisoformat(value)
            return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
        except ValueError as error:
            raise misfit(value, dtype, said_by, column) from error
    raise misfit(value, dtype, said_by, column)


def _number(value: float, dtype: pl.DataType) -> float | None:
    """A number as the column has it; None where it cannot hold it."""
    try:
        number = int(value) if dtype.is_integer() else float(value)
        _ = pl.Series([number], dtype=dtype)
    except (ValueError, OverflowError, TypeError, pl.exceptions.PolarsError):
        return None
    exact = not dtype.is_integer() or number == value
    return number if exact and math.isfinite(number) else None


def bounds(
    kwargs: Mapping[str, Any], dtype: pl.DataType, said_by: str, column: str
) -> dict[str, Any]:
    """``min_value`` and ``max_value`` as values that the column compares with.

    Raises:
        ContractError: one of them is of another type than the column.
    """
    return {
        key: _bound(kwargs[key], dtype, said_by, column)
        for key in ("min_value", "max_value")
        if key in kwargs
    }


def of_a_count(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The bounds of a count or a length, cut to whole numbers as Great Expectations does it."""
    return {
        key: int(said) if isinstance(said, float) and key in _SAID else said
        for key, said in kwargs.items()
    }


def within(value: Any, kwargs: Mapping[str, Any], edges: Mapping[str, Any]) -> Any:
    """Return whether a value, or each of an expression's, is between the edges."""
    inside: Any = True
    if "min_value" in edges:
        low = edges["min_value"]
        inside = value > low if kwargs.get("strict_min") else value >= low
    if "max_value" in edges:
        high = edges["max_value"]
        below = value < high if kwargs.get("strict_max") else value <= high
        inside = inside & below
    return inside


def span_words(kwargs: Mapping[str, Any]) -> str:
    """``at least 0 and below 3``."""
    words: list[str] = []
    if "min_value" in kwargs:
        words.append(f"{'above' if kwargs.get('strict_min') else 'at least'} {kwargs['min_value']}")
    if "max_value" in kwargs:
        words.append(f"{'below' if kwargs.get('strict_max') else 'at most'} {kwargs['max_value']}")
    return " and ".join(words)


def misfit(value: object, dtype: pl.DataType, said_by: str, column: str) -> ContractError:
    """A value that its column cannot have."""
    return ContractError(
        f"{said_by}: {value!r} is not a value of {column!r}, which is {dtype}. Correct the"
        " contract, or the column's type in defs.yaml."
    )


def _bound(value: Any, dtype: pl.DataType, said_by: str, column: str) -> Any:
    if dtype.is_numeric() and isinstance(value, int | float):
        return value if abs(value) < _INT64_EDGE else float(value)
    if dtype.is_temporal():
        return literal(value, dtype, said_by, column)
    raise misfit(value, dtype, said_by, column)
