"""Rules for single rows as polars expressions: which rows they judge, and which break them."""

import re
import warnings
from dataclasses import dataclass
from typing import Any

import polars as pl

from ml_assets.assets.validated_table.contract.conditions import where
from ml_assets.assets.validated_table.contract.suite import Expectation
from ml_assets.assets.validated_table.contract.values import (
    bounds,
    literal,
    of_a_count,
    span_words,
    within,
    without_nan,
)

_SHOWN_VALUES = 8
_TOKEN = re.compile(
    r"""(?P<escape>\\[dws.^$*+?()\[\]{}|/\\-])   # classes that are translated, and plain signs
    |(?P<group>\((?:\?:|(?!\?))|\))
    |(?P<repeat>[*+?]\??|\{\d{1,3}(?:,\d{0,3})?\}\??)
    |(?P<set>\[\^?(?:\\[dws.^$*+?()\[\]{}|/\\-]|[^\\\[\]&~-]|(?<=\w)-(?=\w))+-?\])
    |(?P<anchor>\^|\$)
    |(?P<plain>[^\\\[\]{}()*+?^$]) """,
    re.VERBOSE,
)
_CLASSES = {r"\w": r"\p{L}\p{N}_", r"\s": r"\s\x1c-\x1f", r"\d": r"\p{Nd}"}
"""What Python means by them: ``str.isalnum``, ``str.isspace`` and ``str.isdecimal``."""
_END = r"\n?\z"
"""Python's ``$`` also matches before a newline that ends the text."""


@dataclass(frozen=True)
class RowRule:
    """A row-level expectation as expressions over the table."""

    expectation: Expectation
    breaks: pl.Expr
    """True where a row breaks it, never null."""
    judged: pl.Expr
    """True where it judges the row at all, never null."""
    words: str
    """What a row must do, after ``must``."""
    key: tuple[pl.Expr, ...] = ()
    """Where only judged rows of equal keys break it, the key: that there are none can be proved
    for less than ``breaks`` costs."""


@dataclass(frozen=True)
class _Said:
    """What a type says of a row, the condition on rows apart."""

    holds: pl.Expr
    """Where it is null, the row breaks it."""
    judged: pl.Expr
    words: str
    key: tuple[pl.Expr, ...] = ()


def row_rule(expectation: Expectation, schema: pl.Schema) -> RowRule | None:
    """The rule of an expectation; None where polars does not say it the same way.

    Raises:
        ContractError: a value of it is none of its column.
    """
    meant = where(expectation.kwargs.get("row_condition"), schema, expectation.check_name)
    said = _said(expectation, schema, pl.len() if meant is None else meant.sum())
    if said is None:
        return None
    among = "" if meant is None else " (of the rows that its condition means)"
    judged = said.judged if meant is None else said.judged & meant
    broken = judged & ~said.holds.fill_null(False)
    return RowRule(expectation, broken, judged, said.words + among, said.key)


def _said(expectation: Expectation, schema: pl.Schema, rows: pl.Expr) -> _Said | None:
    """Args: rows: the number of rows that are meant, to be counted by group."""
    match expectation.type:
        case "expect_compound_columns_to_be_unique":
            return _unique_key(expectation, schema, rows)
        case (
            "expect_column_pair_values_to_be_equal"
            | "expect_column_pair_values_a_to_be_greater_than_b"
        ):
            return _pair(expectation, schema)
        case "expect_column_values_to_not_be_null":
            there = _is_there(expectation, schema)
            return _Said(there, _every(there), "not be null")
        case "expect_column_values_to_be_null":
            there = _is_there(expectation, schema)
            return _Said(~there, _every(there), "be null")
        case "expect_column_values_to_be_unique":
            key = without_nan(expectation.kwargs["column"], schema)
            return _Said(rows.over(key) == 1, key.is_not_null(), "be unique", (key,))
        case _:
            return _value(expectation, schema)


def _value(expectation: Expectation, schema: pl.Schema) -> _Said | None:
    """What is said of each value that is there."""
    column = expectation.kwargs["column"]
    found = _of_text(expectation) if schema[column] == pl.String else None
    if found is None:
        match expectation.type:
            case "expect_column_values_to_be_between":
                kwargs = expectation.kwargs
                edges = bounds(kwargs, schema[column], expectation.check_name, column)
                edges = {key: _edge(edge, schema[column]) for key, edge in edges.items()}
                found = within(pl.col(column), kwargs, edges), f"be {span_words(kwargs)}"
            case "expect_column_values_to_be_in_set":
                found = _member(expectation, schema), f"be one of {_values(expectation)}"
            case "expect_column_values_to_not_be_in_set":
                found = ~_member(expectation, schema), f"not be one of {_values(expectation)}"
            case _:
                return None
    return _Said(found[0], _is_there(expectation, schema), found[1])


def _of_text(expectation: Expectation) -> tuple[pl.Expr, str] | None:
    kwargs = expectation.kwargs
    column = pl.col(kwargs["column"])
    match expectation.type:
        case "expect_column_values_to_match_regex" | "expect_column_values_to_not_match_regex":
            pattern = translated(kwargs["regex"])
            if pattern is None:
                return None
            matches = column.str.contains(pattern)
            if "_not_" in expectation.type:
                return ~matches, f"not match {kwargs['regex']}"
            return matches, f"match {kwargs['regex']}"
        case "expect_column_value_lengths_to_equal":
            same = column.str.len_chars() == kwargs["value"]
            return same, f"be {kwargs['value']} characters long"
        case "expect_column_value_lengths_to_be_between":
            length = column.str.len_chars().cast(pl.Int64)
            kwargs = of_a_count(kwargs)
            return within(length, kwargs, kwargs), f"have a length of {span_words(kwargs)}"
        case _:
            return None


def _edge(edge: Any, dtype: pl.DataType) -> pl.Expr:
    return pl.lit(edge, dtype=dtype) if dtype.is_temporal() else pl.lit(edge)


def _member(expectation: Expectation, schema: pl.Schema) -> pl.Expr:
    column, name = expectation.kwargs["column"], expectation.check_name
    dtype = schema[column]
    values = [literal(value, dtype, name, column) for value in expectation.kwargs["value_set"]]
    return pl.col(column).is_in(pl.Series(values, dtype=dtype).implode()).fill_null(False)


def _values(expectation: Expectation) -> str:
    values = expectation.kwargs["value_set"]
    more = f" and {len(values) - _SHOWN_VALUES} more" if len(values) > _SHOWN_VALUES else ""
    return ", ".join(str(value) for value in values[:_SHOWN_VALUES]) + more


def _every(there: pl.Expr) -> pl.Expr:
    """True in every row: a literal would count as one row."""
    return there | ~there


def _is_there(expectation: Expectation, schema: pl.Schema) -> pl.Expr:
    return without_nan(expectation.kwargs["column"], schema).is_not_null()


def _unique_key(expectation: Expectation, schema: pl.Schema, rows: pl.Expr) -> _Said:
    columns: list[str] = expectation.kwargs["column_list"]
    keys = [without_nan(column, schema) for column in columns]
    judged = _judged(keys, expectation.kwargs.get("ignore_row_if", "all_values_are_missing"))
    words = f"be unique by ({', '.join(columns)})"
    return _Said(rows.over(keys) == 1, judged, words, tuple(keys))


def _pair(expectation: Expectation, schema: pl.Schema) -> _Said | None:
    kwargs = expectation.kwargs
    left, right = kwargs["column_A"], kwargs["column_B"]
    if not _comparable(schema[left], schema[right], equal=expectation.type.endswith("_equal")):
        return None
    pair = [without_nan(left, schema), without_nan(right, schema)]
    judged = _judged(pair, kwargs.get("ignore_row_if", "both_values_are_missing"))
    if expectation.type.endswith("_equal"):
        return _Said(pair[0] == pair[1], judged, f"have {left} equal to {right}")
    if kwargs.get("or_equal"):
        return _Said(pair[0] >= pair[1], judged, f"have {left} at least as great as {right}")
    return _Said(pair[0] > pair[1], judged, f"have {left} greater than {right}")


def _comparable(left: pl.DataType, right: pl.DataType, *, equal: bool) -> bool:
    if left.is_numeric() and right.is_numeric():
        return True
    return left == right and (left.is_temporal() or (equal and left in (pl.String, pl.Boolean)))


def _judged(columns: list[pl.Expr], ignore_row_if: str) -> pl.Expr:
    there = [column.is_not_null() for column in columns]
    match ignore_row_if:
        case "never" | "neither":
            return _every(there[0])
        case "any_value_is_missing" | "either_value_is_missing":
            return pl.all_horizontal(there)
        case _:
            return pl.any_horizontal(there)


def translated(pattern: str) -> str | None:
    """A regular expression of Python as polars' own (Rust's).

    None where it may not mean the same there, or is not valid: then the expectation goes to Great
    Expectations' engine. Rust has no look-around and no back-references, and takes ``[[``, ``&&``,
    ``--`` and ``~~`` in a class for operators.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what may change in Python's: it is not translated
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return None
    found: list[str] = []
    place, last = 0, None
    while place < len(pattern):
        token = _TOKEN.match(pattern, place)
        if token is None or token.lastgroup == last == "repeat":  # a*+ gives nothing back in Python
            return None
        found.append(_said_in_rust(token))
        place, last = token.end(), token.lastgroup
    said = "".join(found)
    try:
        pl.Series([""]).str.contains(said)
    except pl.exceptions.ComputeError:  # longer than Rust's limit: it repeats a large class often
        return None
    return said


def _said_in_rust(token: re.Match[str]) -> str:
    text = token[0]
    match token.lastgroup:
        case "escape":
            return f"[{_CLASSES[text]}]" if text in _CLASSES else text
        case "set":
            return re.sub(r"\\[dws]", lambda found: _CLASSES[found[0]], text)
        case "anchor":
            return _END if text == "$" else text
        case _:
            return text
