"""The compiled answers are those of Great Expectations, on tables made to find a difference.

More examples than the few by default: ML_ASSETS_TEST_EXAMPLES=300.
"""

import os
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ml_assets.assets.validated_table.contract.compiled import audit
from ml_assets.assets.validated_table.contract.expectation_types import (
    BY_ENGINE,
    COMPILED,
    SUPPORTED,
)
from ml_assets.assets.validated_table.contract.row_rules import row_rule, translated
from ml_assets.assets.validated_table.contract.suite import Contract, Expectation
from ml_assets.assets.validated_table.contract.whole_rules import whole_rule
from ml_assets_tests.assets.validated_table.conftest import Answer, Statement

EXAMPLES = int(os.environ.get("ML_ASSETS_TEST_EXAMPLES", "8"))
SCHEMA = {"a": pl.Float64, "b": pl.Float64, "c": pl.String}
WHOLE_NUMBERS = SCHEMA | {"a": pl.Int64, "b": pl.Int64}
NUMBERS = st.sampled_from([None, float("nan"), -0.0, 0.0, 1.0, 2.0])
WORDS = st.sampled_from([None, "", "a", "ab\n", "é1", "a-b"])
TABLES = st.lists(st.tuples(NUMBERS, NUMBERS, WORDS), max_size=12)
COUNTS = st.sampled_from([None, 0, 1, 2, 2**53 - 1])
TABLES_OF_COUNTS = st.lists(st.tuples(COUNTS, COUNTS, WORDS), max_size=12)
MOSTLY = st.sampled_from([0.0, 0.25, 0.5, 2 / 3, 0.75, 0.9, 1.0])
COLUMN = st.sampled_from(["a", "c"])
EDGE = st.sampled_from([0, 0.5, 1, 2])
KEYS = st.sampled_from([["a", "b"], ["b", "c"], ["a", "b", "c"]])
IGNORE = st.sampled_from(["all_values_are_missing", "any_value_is_missing", "never"])
IGNORE_PAIR = st.sampled_from(["both_values_are_missing", "either_value_is_missing", "neither"])
PATTERNS = st.sampled_from(
    [
        "a",
        "^a",
        "b$",
        r"^\w*$",
        r"\d",
        "a|1",
        "[a-c]{2}",
        r"^(?:a\s?)+$",
        "[^a]",
        "^.$",
        r"^[\w-]+$",
    ]
)


@st.composite
def bounds(draw: st.DrawFn) -> dict[str, Any]:
    low, high = sorted([draw(EDGE), draw(EDGE)])
    lower = {"min_value": low, "strict_min": draw(st.booleans())}
    upper = {"max_value": high, "strict_max": draw(st.booleans())}
    return draw(st.sampled_from([lower, upper, lower | upper]))


@st.composite
def member(draw: st.DrawFn) -> dict[str, Any]:
    column = draw(COLUMN)
    values = [0.0, 1.0, 7.0] if column == "a" else ["", "a", "z"]
    chosen = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True))
    return {"column": column, "value_set": chosen}


def leaf(column: str, operator: str, parameter: object) -> dict[str, Any]:
    return {
        "type": "comparison",
        "column": {"name": column},
        "operator": operator,
        "parameter": parameter,
    }


LEAVES = st.one_of(
    st.builds(leaf, st.just("b"), st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), EDGE),
    st.builds(leaf, st.just("c"), st.sampled_from(["==", "!="]), st.sampled_from(["", "a"])),
    st.builds(leaf, st.just("b"), st.sampled_from(["IN", "NOT_IN"]), st.just([0, 1])),
    st.builds(leaf, st.just("c"), st.sampled_from(["IN", "NOT_IN"]), st.just(["a", "é1"])),
    st.builds(
        lambda column, null: {"type": "nullity", "column": {"name": column}, "is_null": null},
        st.sampled_from(["b", "c"]),
        st.booleans(),
    ),
)
CONDITIONS = st.one_of(
    LEAVES,
    st.builds(
        lambda kind, parts: {"type": kind, "conditions": parts},
        st.sampled_from(["and", "or"]),
        st.lists(LEAVES, min_size=2, max_size=2),
    ),
)


def said(**kwargs: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({**kwargs, "mostly": MOSTLY})


def bounded(**kwargs: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda bound, rest: bound | rest, bounds(), st.fixed_dictionaries(kwargs))


def with_mostly(strategy: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda kwargs, share: {**kwargs, "mostly": share}, strategy, MOSTLY)


ON_A = st.just("a")
ON_C = st.just("c")
PAIR = {"column_A": ON_A, "column_B": st.just("b"), "ignore_row_if": IGNORE_PAIR}
OF_ROWS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "expect_column_values_to_not_be_null": said(column=COLUMN),
    "expect_column_values_to_be_null": said(column=COLUMN),
    "expect_column_values_to_be_unique": said(column=COLUMN),
    "expect_compound_columns_to_be_unique": said(column_list=KEYS, ignore_row_if=IGNORE),
    "expect_column_values_to_be_between": with_mostly(bounded(column=ON_A)),
    "expect_column_values_to_be_in_set": with_mostly(member()),
    "expect_column_values_to_not_be_in_set": with_mostly(member()),
    "expect_column_values_to_match_regex": said(column=ON_C, regex=PATTERNS),
    "expect_column_values_to_not_match_regex": said(column=ON_C, regex=PATTERNS),
    "expect_column_value_lengths_to_equal": said(column=ON_C, value=st.sampled_from([0, 1, 2])),
    "expect_column_value_lengths_to_be_between": with_mostly(bounded(column=ON_C)),
    "expect_column_pair_values_to_be_equal": said(**PAIR),
    "expect_column_pair_values_a_to_be_greater_than_b": said(**PAIR, or_equal=st.booleans()),
}
"""Kwargs of each row-level type, on columns ``a`` and ``b`` (numbers) and ``c`` (words)."""

OF_COLUMNS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    **{
        f"expect_column_{name}_to_be_between": bounded(column=ON_A)
        for name in ("min", "max", "mean", "median", "sum", "stdev")
    },
    "expect_column_unique_value_count_to_be_between": bounded(column=COLUMN),
    "expect_column_proportion_of_unique_values_to_be_between": bounded(column=COLUMN),
    **{
        f"expect_column_distinct_values_to_{name}_set": member()
        for name in ("be_in", "contain", "equal")
    },
}

NARROWED = OF_ROWS | OF_COLUMNS
"""Those that a row condition may narrow."""

OF_TABLES: list[tuple[str, dict[str, Any]]] = [
    *(
        ("expect_table_row_count_to_be_between", {side: 2, f"strict_{side[:3]}": strict})
        for side in ("min_value", "max_value")
        for strict in (True, False)
    ),
    *(
        ("expect_table_row_count_to_be_between", {side: 2.5, f"strict_{side[:3]}": strict})
        for side in ("min_value", "max_value")
        for strict in (True, False)
    ),
    *(
        ("expect_table_columns_to_match_set", {"column_set": names, "exact_match": exact})
        for names in (["a", "b", "c"], ["a"], ["a", "z"], ["a", "b", "c", "z"])
        for exact in (True, False)
    ),
    *(
        ("expect_table_columns_to_match_ordered_list", {"column_list": names})
        for names in (["a", "b", "c"], ["b", "a", "c"], ["a", "b"], ["a", "b", "c", "z"])
    ),
    *(("expect_table_row_count_to_equal", {"value": value}) for value in (1, 2, 2.5)),
    *(("expect_table_column_count_to_equal", {"value": value}) for value in (2, 3, 3.5)),
    *(("expect_column_to_exist", {"column": name}) for name in ("a", "z")),
    *(
        ("expect_table_column_count_to_be_between", {"min_value": value})
        for value in (2.5, 3, 3.5, 4)
    ),
    *(("expect_table_column_count_to_be_between", {"max_value": value}) for value in (2, 3)),
]
"""All there is to the table-level types."""

ENGINE: dict[str, dict[str, Any]] = {
    "expect_column_kl_divergence_to_be_less_than": {
        "column": "t",
        "partition_object": {"values": ["u", "v"], "weights": [0.5, 0.5]},
        "threshold": 0.1,
    },
    "expect_column_most_common_value_to_be_in_set": {"column": "n", "value_set": [2]},
    "expect_column_pair_values_to_be_in_set": {
        "column_A": "n",
        "column_B": "t",
        "value_pairs_set": [[1, "u"], [2, "v"]],
        "mostly": 0.5,
    },
    "expect_column_proportion_of_non_null_values_to_be_between": {"column": "a", "min_value": 0.5},
    "expect_column_quantile_values_to_be_between": {
        "column": "n",
        "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[1, 2]]},
    },
    "expect_column_type_to_be": {"column": "n", "type_": "int64"},
    "expect_column_value_z_scores_to_be_less_than": {
        "column": "a",
        "threshold": 1,
        "double_sided": True,
        "mostly": 0.3,
    },
    "expect_column_values_to_be_dateutil_parseable": {"column": "s", "mostly": 0.3},
    "expect_column_values_to_be_decreasing": {"column": "n", "mostly": 0.5},
    "expect_column_values_to_be_in_type_list": {"column": "n", "type_list": ["int64"]},
    "expect_column_values_to_be_increasing": {"column": "n", "mostly": 0.5},
    "expect_column_values_to_be_json_parseable": {"column": "s", "mostly": 0.3},
    "expect_column_values_to_be_of_type": {"column": "n", "type_": "int64"},
    "expect_column_values_to_match_json_schema": {"column": "j", "json_schema": {"type": "object"}},
    "expect_column_values_to_match_regex_list": {
        "column": "s",
        "regex_list": ["^2", "x"],
        "mostly": 0.5,
    },
    "expect_column_values_to_match_strftime_format": {
        "column": "s",
        "strftime_format": "%Y-%m-%d",
        "mostly": 0.3,
    },
    "expect_column_values_to_not_be_outliers": {"column": "a", "method": "iqr"},
    "expect_column_values_to_not_match_regex_list": {
        "column": "s",
        "regex_list": ["^2"],
        "mostly": 0.5,
    },
    "expect_multicolumn_sum_to_equal": {
        "column_list": ["a", "n"],
        "sum_total": 2,
        "ignore_row_if": "never",
        "mostly": 0.25,
    },
    "expect_multicolumn_values_to_be_equal": {"column_list": ["s", "t"], "mostly": 0.0},
    "expect_select_column_values_to_be_unique_within_record": {"column_list": ["s", "t"]},
}
"""A passing statement of each type that only the engine judges, about ``SAMPLE``."""
SAMPLE = pl.DataFrame(
    {
        "a": [1.0, None, 3.0, 2.0],
        "n": [1, 2, 3, 2],
        "s": ["2020-01-01", None, '{"a":1}', "x"],
        "t": ["u", "v", "v", "u"],
        "j": ['{"a":1}', "{}", None, '{"b":2}'],
    }
)


def answered(frame: pl.DataFrame, *statements: Statement) -> list[Answer]:
    contract = Contract("t", tuple(expectations(*statements)))
    return [(found.passed, found.rows_failed) for found in audit(frame, contract).results]


def expectations(*statements: Statement) -> list[Expectation]:
    return [
        Expectation(kind, kwargs, "critical", f"check_{number}")
        for number, (kind, kwargs) in enumerate(statements)
    ]


def held(oracle: Any, rows: list[Any], *statements: Statement, schema: Any = SCHEMA) -> None:
    """Compiled, and of the same answers."""
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    for expectation in expectations(*statements):
        compiled = row_rule if COMPILED[expectation.type].about == "row" else whole_rule
        assert compiled(expectation, frame.schema) is not None, "judged by the engine itself"
    theirs = oracle(frame, *statements)
    differ = [
        (statement, ours, other)
        for statement, ours, other in zip(
            statements, answered(frame, *statements), theirs, strict=True
        )
        if ours != other
    ]
    assert not differ, (differ, rows)


def test_every_supported_type_is_held_to_the_oracle() -> None:
    assert {*OF_ROWS, *OF_COLUMNS, *(kind for kind, _ in OF_TABLES)} == set(COMPILED)
    assert set(ENGINE) == set(BY_ENGINE)
    assert set(SUPPORTED) == {*COMPILED, *BY_ENGINE}


@pytest.mark.usefixtures("oracle")
def test_every_type_is_one_that_the_package_has() -> None:
    from great_expectations.expectations.registry import list_registered_expectation_implementations

    assert set(SUPPORTED) <= set(list_registered_expectation_implementations())


CHECKED = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    phases=[Phase.generate],  # to make a failing example smaller takes minutes of the oracle
    suppress_health_check=list(HealthCheck),
)


@CHECKED
@given(rows=TABLES, data=st.data())
def test_an_expectation_answers_as_great_expectations(oracle, rows, data):
    held(oracle, rows, *((kind, data.draw(kwargs)) for kind, kwargs in NARROWED.items()))


@settings(CHECKED, max_examples=max(EXAMPLES // 2, 1))
@given(rows=TABLES_OF_COUNTS, data=st.data())
def test_whole_numbers_are_judged_alike(oracle, rows, data):
    drawn = [(kind, data.draw(kwargs)) for kind, kwargs in NARROWED.items()]
    held(oracle, rows, *drawn, schema=WHOLE_NUMBERS)


@CHECKED
@given(rows=TABLES, condition=CONDITIONS, data=st.data())
def test_a_row_condition_means_the_same_rows(oracle, rows, condition, data):
    drawn = [(kind, data.draw(kwargs)) for kind, kwargs in NARROWED.items()]
    held(oracle, rows, *((kind, {**said, "row_condition": condition}) for kind, said in drawn))


@pytest.mark.parametrize("rows", [1, 2])
def test_a_table_expectation_answers_as_great_expectations(oracle, rows):
    held(oracle, [(1.0, 1.0, "a")] * rows, *OF_TABLES)


@pytest.mark.parametrize("kind", ENGINE)
def test_what_is_not_compiled_gets_the_engines_own_answer(oracle, kind):
    found = answered(SAMPLE, (kind, ENGINE[kind]))
    assert found == oracle(SAMPLE, (kind, ENGINE[kind]))
    assert found[0][0]


@pytest.mark.parametrize("kind", [kind for kind in OF_ROWS if "regex" in kind])
@pytest.mark.parametrize(
    "pattern", [r"(?=a)", r"(a)\1", "a*+b", "[[a]", "(?i)A", r"\bab", "[a&&b]", r"^\w{1,255}$"]
)
def test_a_pattern_that_rust_does_not_say_the_same_way_is_judged_by_the_engine(
    oracle, kind, pattern
):
    assert translated(pattern) is None
    frame = pl.DataFrame({"c": ["a", "ab", "aa", "[a", "&", "x" * 300, None]})
    kwargs = {"column": "c", "regex": pattern, "mostly": 0.1}
    assert answered(frame, (kind, kwargs)) == oracle(frame, (kind, kwargs))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_column_by_its_place_is_judged_by_the_engine(oracle, place):
    frame = pl.DataFrame({"a": [1], "b": [1], "c": ["x"]})
    statement = ("expect_column_to_exist", {"column": "b", "column_index": place})
    assert answered(frame, statement) == oracle(frame, statement)


def test_lengths_of_numbers_are_judged_by_the_engine():
    frame = pl.DataFrame({"n": [1, 22, None]})
    kwargs = {"column": "n", "min_value": 2, "mostly": 0.1}
    kind = "expect_column_value_lengths_to_be_between"
    assert answered(frame, (kind, kwargs)) == [(True, 1)]


@CHECKED
@given(text=st.text(st.characters(codec="utf-8"), max_size=4), pattern=PATTERNS)
def test_a_translated_pattern_finds_in_any_text_what_python_finds(text, pattern):
    import re

    rust = translated(pattern)
    assert rust is not None
    matches = pl.Series([text]).str.contains(rust).item()
    assert matches == bool(re.search(pattern, text))
