"""The compiled answers are those of Great Expectations, on tables made to find a difference."""

import logging
import os
import warnings
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ml_assets.validation.compiled import audit
from ml_assets.validation.contract import SUPPORTED, Contract, Expectation

SCHEMA = {"a": pl.Float64, "b": pl.Float64, "c": pl.String}
NUMBERS = st.sampled_from([None, float("nan"), 0.0, 1.0, 2.0])
WORDS = st.sampled_from([None, "", "a"])
TABLES = st.lists(st.tuples(NUMBERS, NUMBERS, WORDS), max_size=12)
MOSTLY = st.sampled_from([0.0, 0.25, 0.5, 2 / 3, 0.75, 0.9, 1.0])
COLUMN = st.sampled_from(["a", "c"])
EDGE = st.sampled_from([0, 0.5, 1, 2])
KEYS = st.sampled_from([["a", "b"], ["b", "c"], ["a", "b", "c"]])
IGNORE = st.sampled_from(["all_values_are_missing", "any_value_is_missing", "never"])


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
    chosen = draw(st.lists(st.sampled_from(values), min_size=column == "a", max_size=3))
    return {"column": column, "value_set": chosen, "mostly": draw(MOSTLY)}


def mostly(**kwargs: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({**kwargs, "mostly": MOSTLY})


ROW_STATEMENTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "expect_column_values_to_not_be_null": mostly(column=COLUMN),
    "expect_column_values_to_be_unique": mostly(column=COLUMN),
    "expect_compound_columns_to_be_unique": mostly(column_list=KEYS, ignore_row_if=IGNORE),
    "expect_column_values_to_be_between": st.builds(
        lambda bound, rest: bound | rest, bounds(), mostly(column=st.just("a"))
    ),
    "expect_column_values_to_be_in_set": member(),
}
"""Kwargs of each row-level type, on columns ``a`` and ``b`` (numbers) and ``c`` (words)."""


TABLE_STATEMENTS: list[tuple[str, dict[str, Any]]] = [
    *(
        ("expect_table_row_count_to_be_between", {side: 2, f"strict_{side[:3]}": strict})
        for side in ("min_value", "max_value")
        for strict in (True, False)
    ),
    *(
        ("expect_table_columns_to_match_set", {"column_set": names, "exact_match": exact})
        for names in (["a", "b", "c"], ["a"], ["a", "z"], ["a", "b", "c", "z"])
        for exact in (True, False)
    ),
]
"""All there is to the table-level types."""


@pytest.fixture(scope="module")
def oracle():
    """Great Expectations' own verdict: (success, rows that break it)."""
    os.environ["GX_ANALYTICS_ENABLED"] = "False"
    import great_expectations as gx
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # pyright: ignore[reportAttributeAccessIssue]
    asset = context.data_sources.add_pandas("p").add_dataframe_asset("t")
    definition = asset.add_batch_definition_whole_dataframe("all")

    def judge(frame: pl.DataFrame, kind: str, kwargs: dict[str, Any]) -> tuple[bool, int]:
        batch = definition.get_batch(batch_parameters={"dataframe": frame.to_pandas()})
        expectation = ExpectationConfiguration(type=kind, kwargs=kwargs).to_domain_obj()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = batch.validate(expectation)
        assert not found.exception_info.get("raised_exception"), found.exception_info
        return bool(found.success), int(found.result.get("unexpected_count") or 0)

    return judge


def compiled(frame: pl.DataFrame, kind: str, kwargs: dict[str, Any]) -> tuple[bool, int]:
    contract = Contract("t", (Expectation(kind, kwargs, "critical", None, "check"),))
    (result,) = audit(frame, contract).results
    return result.passed, result.rows_failed


def test_every_supported_type_is_held_to_the_oracle():
    assert {*ROW_STATEMENTS, *(kind for kind, _ in TABLE_STATEMENTS)} == set(SUPPORTED)


@pytest.mark.parametrize("kind", ROW_STATEMENTS)
@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(rows=TABLES, data=st.data())
def test_a_row_expectation_answers_as_great_expectations(oracle, kind, rows, data):
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    kwargs = data.draw(ROW_STATEMENTS[kind])
    assert compiled(frame, kind, kwargs) == oracle(frame, kind, kwargs)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_table_expectation_answers_as_great_expectations(oracle, rows):
    frame = pl.DataFrame([(1.0, 1.0, "a")] * rows, schema=SCHEMA, orient="row")
    for kind, kwargs in TABLE_STATEMENTS:
        assert compiled(frame, kind, kwargs) == oracle(frame, kind, kwargs), (kind, kwargs)
