"""What is published, what is kept back, and that no row is lost."""

from datetime import UTC, date, datetime
from typing import Any

import polars as pl
import pytest

from ml_assets.assets.validated_table.contract.compiled import Audit, audit
from ml_assets.assets.validated_table.contract.suite import Contract, Expectation
from ml_assets.assets.validated_table.quarantine import REASON
from ml_assets.errors import ContractError

BETWEEN = "expect_column_values_to_be_between"
IN_SET = "expect_column_values_to_be_in_set"
NOT_NULL = "expect_column_values_to_not_be_null"
ROW_COUNT = "expect_table_row_count_to_be_between"
COLUMNS = "expect_table_columns_to_match_set"
UNIQUE_KEY = "expect_compound_columns_to_be_unique"


def expect(kind: str, severity: str = "critical", **kwargs: Any) -> Expectation:
    name = f"{kind}_{severity}_{kwargs.get('column', '')}"
    return Expectation(kind, kwargs, severity, name)  # pyright: ignore[reportArgumentType]


def audited(frame: pl.DataFrame, *expectations: Expectation) -> Audit:
    result = audit(frame, Contract("t", expectations))
    assert result.clean.height + result.quarantined.height == frame.height
    assert result.clean.columns == frame.columns
    assert result.quarantined.columns == [*frame.columns, REASON]
    assert [r.check_name for r in result.results] == [e.check_name for e in expectations]
    return result


WIND = pl.DataFrame({"key": range(10), "wind": [5.0] * 8 + [1048.0, None]})


def test_a_passing_critical_expectation_quarantines_its_failing_rows():
    found = audited(WIND, expect(BETWEEN, column="wind", min_value=0, max_value=150, mostly=0.8))
    assert found.passed
    assert found.quarantined["wind"].to_list() == [1048.0]
    assert BETWEEN in found.quarantined[REASON][0]
    assert None in found.clean["wind"], "a null breaks no range"
    assert found.results[0].rows_failed == 1
    assert found.results[0].observed == pytest.approx(8 / 9), "mostly is a share of what is there"


def test_a_failed_critical_expectation_publishes_nothing_and_keeps_all_rows():
    found = audited(WIND, expect(BETWEEN, column="wind", max_value=150))
    assert not found.passed
    assert found.clean.is_empty()
    reasons = found.quarantined.sort("key")[REASON]
    assert reasons[0].startswith("held back:")
    assert not reasons[8].startswith("held back:")


def test_a_failed_warning_is_counted_and_published():
    found = audited(WIND, expect(BETWEEN, "warning", column="wind", max_value=150))
    assert found.passed
    assert found.clean.height == WIND.height
    assert not found.results[0].passed
    assert found.results[0].rows_failed == 1


def test_a_failed_table_expectation_publishes_nothing():
    found = audited(WIND, expect(ROW_COUNT, min_value=11))
    assert not found.passed
    assert found.clean.is_empty()
    assert "10 rows" in found.results[0].reason


def test_columns_that_differ_are_named():
    found = audited(WIND, expect(COLUMNS, column_set=["key", "gust"]))
    assert found.results[0].observed == "missing: gust; extra: wind"


def test_a_row_that_breaks_two_checks_is_quarantined_once_with_both_reasons():
    frame = pl.DataFrame({"a": [1, 1, 9, None, 2, 3, 4, 5], "b": ["x"] * 7 + ["q"]})
    high = expect(BETWEEN, column="a", max_value=4, mostly=0.5)
    odd = expect(IN_SET, column="b", value_set=["x"], mostly=0.5)
    found = audited(frame, high, odd)
    reasons = dict(found.quarantined.select("a", REASON).iter_rows())
    assert reasons == {9: high.check_name, 5: f"{high.check_name}, {odd.check_name}"}


def test_every_copy_of_a_duplicate_key_fails():
    frame = pl.DataFrame({"a": [1, 1, 2, None, None], "b": [1, 1, 1, None, None]})
    found = audited(frame, expect(UNIQUE_KEY, column_list=["a", "b"], mostly=0.1))
    assert found.quarantined["a"].to_list() == [1, 1]


def test_an_empty_table_breaks_no_row_expectation():
    found = audited(WIND.clear(), expect(NOT_NULL, column="wind"))
    assert found.passed


def test_times_and_dates_are_compared_to_text_in_the_contract():
    frame = pl.DataFrame(
        {"at": [datetime(2013, 1, day, tzinfo=UTC) for day in (1, 2)], "on": [date(2013, 1, 1)] * 2}
    )
    after = expect(BETWEEN, column="at", min_value="2013-01-02T00:00:00Z", mostly=0.5)
    found = audited(frame, after, expect(BETWEEN, column="on", max_value="2013-01-01"))
    assert found.passed
    assert found.clean["at"].to_list() == [datetime(2013, 1, 2, tzinfo=UTC)]


@pytest.mark.parametrize(
    "expectation",
    [
        expect(NOT_NULL, column="gust"),
        expect(BETWEEN, column="wind", min_value="2013-01-01"),
        expect(IN_SET, column="key", value_set=["one"]),
    ],
)
def test_a_contract_that_does_not_fit_the_table_is_an_error(expectation: Expectation):
    with pytest.raises(ContractError):
        audit(WIND, Contract("t", (expectation,)))


@pytest.mark.parametrize("column", ["key", "wind"])
@pytest.mark.parametrize("value", [2**64, 10**400, float("nan"), float("inf")])
def test_a_number_that_its_column_cannot_hold_is_an_error(column: str, value: float):
    if column == "wind" and value == 2**64:
        return  # a float holds it
    meant = {"type": "comparison", "column": {"name": column}, "operator": ">", "parameter": value}
    for stated in (
        expect(IN_SET, column=column, value_set=[1, value]),
        expect("expect_column_distinct_values_to_be_in_set", column=column, value_set=[value]),
        expect(NOT_NULL, column=column, row_condition=meant),
    ):
        with pytest.raises(ContractError, match=f"is not a value of '{column}'"):
            audit(WIND, Contract("t", (stated,)))


def test_a_bound_beyond_64_bits_holds_or_breaks_as_any_other():
    low = expect(BETWEEN, column="key", min_value=-(10**40))
    high = expect(BETWEEN, column="key", max_value=-(10**40))
    assert audited(WIND, low).passed
    assert not audited(WIND, high).passed


def test_a_lazy_frame_gets_the_same_answer():
    contract = Contract("t", (expect(BETWEEN, column="wind", max_value=150, mostly=0.8),))
    eager, lazy = audit(WIND, contract), audit(WIND.lazy(), contract)
    assert eager.results == lazy.results
    assert eager.clean.equals(lazy.clean)


def test_a_row_is_warned_of_once_and_not_where_it_is_quarantined():
    frame = pl.DataFrame({"a": [1, 99, 99, 1], "b": [1, 99, 1, 500]})
    found = audited(
        frame,
        expect(BETWEEN, "warning", column="a", max_value=10),
        expect(BETWEEN, "warning", column="b", max_value=10),
        expect(BETWEEN, column="b", max_value=100, mostly=0.5),
    )
    assert found.quarantined["b"].to_list() == [500]
    assert found.warned == 2
