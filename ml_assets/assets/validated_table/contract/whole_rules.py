"""Statements about a column or a table as a whole: what is observed, and how it is judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import polars as pl

from ml_assets.assets.validated_table.contract.conditions import where
from ml_assets.assets.validated_table.contract.results import WholeFinding
from ml_assets.assets.validated_table.contract.suite import Expectation
from ml_assets.assets.validated_table.contract.values import (
    bounds,
    literal,
    of_a_count,
    span_words,
    within,
    without_nan,
)
from ml_assets.errors import counted, quoted

_SHOWN_VALUES = 5


@dataclass(frozen=True)
class WholeRule:
    """An expectation that no single row breaks."""

    expectation: Expectation
    observed: tuple[pl.Expr, ...]
    """Each one value of the table; found in the one pass."""
    judge: Callable[..., WholeFinding]
    """Called with those values."""


_OBSERVED: Mapping[str, tuple[str, Callable[[pl.Expr], pl.Expr]]] = {
    "expect_column_min_to_be_between": ("smallest value", pl.Expr.min),
    "expect_column_max_to_be_between": ("greatest value", pl.Expr.max),
    "expect_column_mean_to_be_between": ("mean", pl.Expr.mean),
    "expect_column_median_to_be_between": ("median", pl.Expr.median),
    "expect_column_sum_to_be_between": ("sum", pl.Expr.sum),
    "expect_column_stdev_to_be_between": ("standard deviation", pl.Expr.std),
    "expect_column_unique_value_count_to_be_between": (
        "number of distinct values",
        lambda column: column.drop_nulls().n_unique(),
    ),
    "expect_column_proportion_of_unique_values_to_be_between": (
        "number of distinct values for each value",
        lambda column: (column.drop_nulls().n_unique() / column.count()).fill_nan(0.0),
    ),
}
"""What each says of a column, and how it is found. The deviation is the sample's (n - 1)."""
_ONE_VALUE = {
    "expect_column_min_to_be_between",
    "expect_column_max_to_be_between",
    "expect_column_median_to_be_between",
}
"""What they observe is a value of a row."""
_COUNTS = {
    "expect_column_unique_value_count_to_be_between",
    "expect_table_row_count_to_be_between",
    "expect_table_row_count_to_equal",
    "expect_table_column_count_to_equal",
}
"""Those whose bounds are whole numbers; the one of columns between two is not among them."""


def whole_rule(expectation: Expectation, schema: pl.Schema) -> WholeRule | None:
    """The rule of an expectation; None where polars does not say it the same way.

    Raises:
        ContractError: a value of it is none of its column.
    """
    if expectation.type in _COUNTS:
        expectation = replace(expectation, kwargs=of_a_count(expectation.kwargs))
    if expectation.type in _OBSERVED:
        return _aggregate(expectation, schema)
    if expectation.type.startswith("expect_column_distinct_values_"):
        return _distinct(expectation, schema)
    if expectation.type.startswith("expect_table_row_count_"):
        return WholeRule(expectation, (pl.len(),), lambda rows: _row_count(expectation, rows))
    if "column_index" in expectation.kwargs:
        return None  # the engine takes place 0 for none: it is its to judge
    verdict = _columns(expectation, schema)
    return WholeRule(expectation, (), lambda: verdict)


def _column(expectation: Expectation, schema: pl.Schema) -> pl.Expr:
    """The values that are there, of the rows that are meant."""
    column = without_nan(expectation.kwargs["column"], schema)
    meant = where(expectation.kwargs.get("row_condition"), schema, expectation.check_name)
    return column if meant is None else column.filter(meant)


def _aggregate(expectation: Expectation, schema: pl.Schema) -> WholeRule | None:
    name, kwargs = expectation.kwargs["column"], expectation.kwargs
    dtype = schema[name]
    counts = "unique_value" in expectation.type
    orders = "_min_" in expectation.type or "_max_" in expectation.type
    if not (counts or dtype.is_numeric() or (orders and dtype.is_temporal())):
        return None
    of = pl.Float64() if counts else dtype
    edges = bounds(kwargs, of, expectation.check_name, name)
    words, observe = _OBSERVED[expectation.type]

    def judge(value: Any) -> WholeFinding:
        there = value is not None and value == value  # NaN is unlike itself
        passed = bool(there and within(value, kwargs, edges))
        seen = (float(f"{value:.10g}") if isinstance(value, float) else value) if there else "none"
        shown = seen if isinstance(seen, int | float) else str(seen)
        told = quoted(shown) if expectation.type in _ONE_VALUE else shown
        said = f"the {words} of {name} must be {span_words(kwargs)}; it is {told}"
        return WholeFinding(passed, shown, said)

    return WholeRule(expectation, (observe(_column(expectation, schema)),), judge)


def _distinct(expectation: Expectation, schema: pl.Schema) -> WholeRule:
    name = expectation.kwargs["column"]
    values = {
        literal(value, schema[name], expectation.check_name, name)
        for value in expectation.kwargs["value_set"]
    }
    column = _column(expectation, schema).drop_nulls()
    member = column.is_in(pl.Series(list(values), dtype=schema[name]).implode())
    others = column.filter(~member).unique()
    inside = not expectation.type.endswith("_contain_set")
    whole = not expectation.type.endswith("_in_set")

    def judge(of_set: list[Any], more: list[Any], number: int) -> WholeFinding:
        missing = sorted(str(value) for value in values - set(of_set)) if whole else []
        extra = [quoted(value) for value in more] if inside else []
        passed = not missing and not extra
        said = "; ".join(
            f"{word}: {', '.join(found[:_SHOWN_VALUES])}"
            + (f" ({count} in all)" if count > _SHOWN_VALUES else "")
            for word, found, count in (
                ("missing", missing, len(missing)),
                ("not of the set", extra, number),
            )
            if found
        )
        must = "be all of" if whole and inside else "contain all of" if whole else "be among"
        rule = f"the distinct values of {name} must {must} a set of {len(values)}"
        return WholeFinding(passed, said or "as expected", f"{rule}; {said or 'they do'}")

    observed = (
        column.filter(member).unique().implode(),
        others.sort().head(_SHOWN_VALUES).implode(),
        others.len(),
    )
    return WholeRule(expectation, observed, judge)


def _row_count(expectation: Expectation, rows: int) -> WholeFinding:
    kwargs = expectation.kwargs
    if "value" in kwargs:
        expected = f"{kwargs['value']:,} are expected"
        return WholeFinding(rows == kwargs["value"], rows, f"{counted(rows, 'row')}; {expected}")
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    span = f"{'0' if low is None else low} to {'any number' if high is None else high}"
    return WholeFinding(
        within(rows, kwargs, kwargs), rows, f"{counted(rows, 'row')}; {span} are expected"
    )


def _columns(expectation: Expectation, schema: pl.Schema) -> WholeFinding:
    kwargs, names = expectation.kwargs, schema.names()
    match expectation.type:
        case "expect_table_columns_to_match_set":
            return _column_set(kwargs, names)
        case "expect_table_columns_to_match_ordered_list":
            return _column_order(kwargs["column_list"], names)
        case "expect_column_to_exist":
            there = kwargs["column"] in names
            said = "there" if there else "not there"
            return WholeFinding(
                there, said, f"column {kwargs['column']!r} must be there; it is {said}"
            )
        case "expect_table_column_count_to_be_between":
            said = f"{span_words(kwargs)} are expected"
        case _:
            kwargs = {"min_value": kwargs["value"], "max_value": kwargs["value"]}
            said = f"{kwargs['min_value']} are expected"
    passed = bool(within(len(names), kwargs, kwargs))
    return WholeFinding(passed, len(names), f"{counted(len(names), 'column')}; {said}")


def _column_set(kwargs: Mapping[str, Any], names: list[str]) -> WholeFinding:
    expected, found = set(kwargs["column_set"]), set(names)
    missing, extra = sorted(expected - found), sorted(found - expected)
    exact = kwargs.get("exact_match", True)
    differs = "; ".join(
        f"{word}: {', '.join(columns)}"
        for word, columns in (("missing", missing), ("extra", extra))
        if columns
    )
    rule = "exactly these" if exact else "at least these"
    return WholeFinding(
        not missing and not (extra and exact),
        differs or "as expected",
        f"{counted(len(found), 'column')}, {differs or 'as expected'}; {rule} are expected:"
        f" {', '.join(sorted(expected))}",
    )


def _column_order(expected: list[str], names: list[str]) -> WholeFinding:
    passed = names == expected
    same = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(names, expected, strict=False))
    )
    said = "as expected" if passed else f"they differ from place {same + 1} on"
    rule = f"in this order are expected: {', '.join(expected)}"
    return WholeFinding(passed, said, f"{counted(len(names), 'column')}, {said}; {rule}")
