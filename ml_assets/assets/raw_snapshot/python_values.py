"""Values of Python, as JSON and databases give them: which ones each declared type takes."""

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from types import NoneType
from typing import Any

from ml_assets.spec.sources import DType

Accepted = Mapping[DType, tuple[type, ...]]
"""The Python types of the values that each declared type takes."""

JSON_VALUES: Accepted = {
    "int64": (int,),
    "float64": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "date": (str,),
    "datetime": (str,),
}
"""The JSON values that each type takes."""

SQL_VALUES: Accepted = {
    "int64": (int, Decimal),
    "float64": (int, float, Decimal),
    "string": (str,),
    "boolean": (bool, int),
    "date": (date,),
    "datetime": (datetime,),
}
"""The values that each type takes from a database; a time without a zone is taken as UTC."""

_NATIVE: Mapping[DType, type] = {"int64": int, "float64": float, "string": str, "boolean": bool}
"""The Python type that needs no conversion."""
_INT64_EDGE = 2**63
_LARGEST = sys.float_info.max


def not_accepted(values: Sequence[object], dtype: DType, accepted: tuple[type, ...]) -> list[int]:
    """Indices of the values that cannot be this type. Exact types: True is not a number."""
    kinds = {type(value) for value in values} - {NoneType}
    ranged = dtype in ("int64", "float64") or int in kinds or datetime in kinds
    if kinds <= set(accepted) and not (kinds and ranged):
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
    if dtype == "boolean":
        return value in (0, 1)
    if isinstance(value, datetime):
        return _has_utc(value)
    if dtype == "int64" and isinstance(value, int):
        return -_INT64_EDGE <= value < _INT64_EDGE
    if dtype == "int64" and isinstance(value, Decimal):
        return value.is_finite() and value == int(value) and _is_in_range(int(value), dtype)
    if dtype == "float64" and isinstance(value, int | float | Decimal):
        return value != value or abs(value) <= _LARGEST  # NaN is unlike itself: it is no value
    return True


def _has_utc(value: datetime) -> bool:
    """Whether its year is still one of Python's once the time is in UTC."""
    try:
        return value.tzinfo is None or value.astimezone(UTC) is not None
    except OverflowError:
        return False


def plainly(values: Sequence[object], dtype: DType) -> Sequence[object]:
    """Values that a type accepts, each as the one Python type that it is stored from."""
    if {type(value) for value in values} <= {NoneType, _NATIVE.get(dtype, NoneType)}:
        return values
    return [_plain(value, dtype) for value in values]


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
