"""What a contract says of booleans and of times is what Great Expectations says of them.

A time in a contract carries its zone here: without one the package refuses to compare.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from ml_assets_tests.assets.validated_table.test_against_great_expectations import (
    CHECKED,
    IGNORE,
    IGNORE_PAIR,
    held,
    leaf,
    said,
    with_mostly,
)

SCHEMA = {
    "a": pl.Boolean,
    "b": pl.Boolean,
    "t": pl.Datetime("us", "UTC"),
    "u": pl.Datetime("us", "UTC"),
}
NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)
TRUTHS = st.sampled_from([None, True, False])
TIMES = st.sampled_from([None, *(NEW_YEAR + timedelta(hours=hours) for hours in (0, 1, 24))])
TABLES = st.lists(st.tuples(TRUTHS, TRUTHS, TIMES, TIMES), max_size=12)
COLUMN = st.sampled_from(["a", "t"])
MOMENT = st.sampled_from(["2024-01-01T00:00:00+00:00", "2024-01-01T01:00:00+00:00"])
KEYS = st.sampled_from([["a", "b"], ["a", "t"], ["t", "u"]])


@st.composite
def bounds(draw: st.DrawFn) -> dict[str, Any]:
    low, high = sorted([draw(MOMENT), draw(MOMENT)])
    lower = {"min_value": low, "strict_min": draw(st.booleans())}
    upper = {"max_value": high, "strict_max": draw(st.booleans())}
    return {"column": "t", **draw(st.sampled_from([lower, upper, lower | upper]))}


@st.composite
def member(draw: st.DrawFn) -> dict[str, Any]:
    column = draw(COLUMN)
    values = st.booleans() if column == "a" else MOMENT
    chosen = draw(st.lists(values, min_size=1, max_size=2, unique=True))
    return {"column": column, "value_set": chosen}


def pair(columns: list[tuple[str, str]], **more: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda names, rest: {"column_A": names[0], "column_B": names[1], **rest},
        st.sampled_from(columns),
        said(ignore_row_if=IGNORE_PAIR, **more),
    )


OF_COUNTS = st.fixed_dictionaries(
    {"column": COLUMN, "min_value": st.just(1), "max_value": st.just(2)}
)
STATEMENTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "expect_column_values_to_not_be_null": said(column=COLUMN),
    "expect_column_values_to_be_null": said(column=COLUMN),
    "expect_column_values_to_be_unique": said(column=COLUMN),
    "expect_compound_columns_to_be_unique": said(column_list=KEYS, ignore_row_if=IGNORE),
    "expect_column_values_to_be_between": with_mostly(bounds()),
    "expect_column_values_to_be_in_set": with_mostly(member()),
    "expect_column_values_to_not_be_in_set": with_mostly(member()),
    "expect_column_pair_values_to_be_equal": pair([("a", "b"), ("t", "u")]),
    "expect_column_pair_values_a_to_be_greater_than_b": pair([("t", "u")], or_equal=st.booleans()),
    "expect_column_min_to_be_between": bounds(),
    "expect_column_max_to_be_between": bounds(),
    "expect_column_unique_value_count_to_be_between": OF_COUNTS,
    **{
        f"expect_column_distinct_values_to_{name}_set": member()
        for name in ("be_in", "contain", "equal")
    },
}
CONDITIONS = st.one_of(
    st.builds(leaf, st.just("a"), st.sampled_from(["==", "!="]), st.booleans()),
    st.builds(leaf, st.just("t"), st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), MOMENT),
)


@CHECKED
@given(rows=TABLES, data=st.data())
def test_truths_and_times_are_judged_alike(oracle, rows, data):
    drawn = [(kind, data.draw(kwargs)) for kind, kwargs in STATEMENTS.items()]
    held(oracle, rows, *drawn, schema=SCHEMA)


@CHECKED
@given(rows=TABLES, condition=CONDITIONS, data=st.data())
def test_a_condition_on_a_truth_or_a_time_means_the_same_rows(oracle, rows, condition, data):
    drawn = [(kind, data.draw(kwargs)) for kind, kwargs in STATEMENTS.items()]
    narrowed = [(kind, {**kwargs, "row_condition": condition}) for kind, kwargs in drawn]
    held(oracle, rows, *narrowed, schema=SCHEMA)
