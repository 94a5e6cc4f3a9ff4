"""Row conditions: the rows that an expectation applies to, as Great Expectations 1.9 writes them.

``{"type": "comparison", "column": {"name": "load"}, "operator": ">", "parameter": 0}``, or of type
``nullity``, and ``and`` and ``or`` over them. A missing value is greater than nothing and equal to
nothing; it does differ from every value (``!=``, ``NOT_IN``), as it does there.
"""

import math
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "IN", "NOT_IN")
_KEYS = {
    "comparison": {"type", "column", "operator", "parameter"},
    "nullity": {"type", "column", "is_null"},
    "and": {"type", "conditions"},
    "or": {"type", "conditions"},
}


def condition_mistakes(condition: object) -> list[str]:
    """Return what is wrong with a row condition, one sentence each."""
    if isinstance(condition, str):
        return [
            f"row_condition is the text {condition!r}, which Great Expectations gave up in 1.9; an"
            ' object is expected, such as {"type": "comparison", "column": {"name": "load"},'
            ' "operator": ">", "parameter": 0}'
        ]
    if not isinstance(condition, Mapping) or condition.get("type") not in _KEYS:
        known = ", ".join(_KEYS)
        return [
            f"row_condition is {condition!r}; an object with one of the types {known} is expected"
        ]
    kind = condition["type"]
    if condition.keys() != _KEYS[kind]:
        return [f"a row_condition of type {kind} has the keys {sorted(_KEYS[kind])}"]
    if kind in ("and", "or"):
        parts = condition["conditions"]
        if not isinstance(parts, list) or not parts:
            return [
                f"conditions of an {kind!r} are {parts!r}; a list with at least one is expected"
            ]
        return [mistake for part in parts for mistake in condition_mistakes(part)]
    return _leaf_mistakes(condition)


def condition_columns(condition: Mapping[str, Any] | None) -> Iterator[str]:
    """The columns that a condition reads."""
    if condition is None:
        return
    for part in condition.get("conditions", ()):
        yield from condition_columns(part)
    if "column" in condition:
        yield condition["column"]["name"]


def where(
    condition: Mapping[str, Any] | None, schema: "pl.Schema", said_by: str
) -> "pl.Expr | None":
    """The rows that a condition means: true or false, never null; None where all rows are meant.

    Args:
        said_by: the check, for the message.

    Raises:
        ContractError: a parameter is no value of its column.
    """

    from ml_assets.assets.validated_table.contract.values import without_nan

    if condition is None:
        return None
    if condition["type"] in ("and", "or"):
        join = and_ if condition["type"] == "and" else or_
        parts = [where(part, schema, said_by) for part in condition["conditions"]]
        return reduce(join, [part for part in parts if part is not None])
    name = condition["column"]["name"]
    column = without_nan(name, schema)
    if condition["type"] == "nullity":
        return column.is_null() if condition["is_null"] else column.is_not_null()
    return _compared(column, schema[name], condition, said_by, name)


def _compared(
    column: "pl.Expr", dtype: "pl.DataType", condition: Mapping[str, Any], said_by: str, name: str
) -> "pl.Expr":
    import polars as pl

    from ml_assets.assets.validated_table.contract.values import literal

    operator, parameter = condition["operator"], condition["parameter"]
    if operator in ("IN", "NOT_IN"):
        values = [literal(value, dtype, said_by, name) for value in parameter]
        member = column.is_in(pl.Series(values, dtype=dtype).implode()).fill_null(False)
        return member if operator == "IN" else ~member
    value = pl.lit(literal(parameter, dtype, said_by, name), dtype=dtype)
    compared = {
        "==": column == value,
        "!=": column != value,
        "<": column < value,
        "<=": column <= value,
        ">": column > value,
        ">=": column >= value,
    }[operator]
    return compared.fill_null(operator == "!=")


def _leaf_mistakes(condition: Mapping[str, Any]) -> list[str]:
    mistakes: list[str] = []
    column = condition["column"]
    if not isinstance(column, Mapping) or not isinstance(column.get("name"), str):
        mistakes.append(f'column of a row_condition is {column!r}; {{"name": ...}} is expected')
    if condition["type"] == "nullity":
        if not isinstance(condition["is_null"], bool):
            mistakes.append(f"is_null is {condition['is_null']!r}; true or false is expected")
        return mistakes
    operator, parameter = condition["operator"], condition["parameter"]
    if operator not in OPERATORS:
        return [*mistakes, f"operator is {operator!r}; use one of {OPERATORS}"]
    if operator in ("IN", "NOT_IN"):
        if not isinstance(parameter, list) or not all(_is_value(value) for value in parameter):
            mistakes.append(
                f"parameter of {operator} is {parameter!r}; a list of values is expected"
            )
    elif not _is_value(parameter):
        mistakes.append(f"parameter of {operator} is {parameter!r}; a value is expected")
    return mistakes


def _is_value(value: object) -> bool:
    return isinstance(value, str | bool | int) or (
        isinstance(value, float) and math.isfinite(value)
    )
