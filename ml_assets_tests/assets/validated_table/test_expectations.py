"""What is not compiled goes to Great Expectations' own engine: rows, limits, errors, absence."""

from typing import Any

import polars as pl
import pytest

from ml_assets.assets.validated_table.contract import expectations
from ml_assets.assets.validated_table.contract.compiled import audit
from ml_assets.assets.validated_table.contract.suite import (
    Contract,
    Expectation,
    Severity,
    read_contract,
)
from ml_assets.assets.validated_table.quarantine import REASON
from ml_assets.errors import ContractError
from ml_assets_tests.fresh import said_by

DATES = "expect_column_values_to_match_strftime_format"
QUANTILES = "expect_column_quantile_values_to_be_between"
FRAME = pl.DataFrame(
    {"day": ["2024-01-01", "soon", None, "2024-01-03"], "n": [1, 2, 3, 4], "other": [0] * 4}
)


def said(kind: str, severity: Severity = "critical", **kwargs: Any) -> Expectation:
    return Expectation(kind, kwargs, severity, f"{kind}_{severity}")


def judged(*stated: Expectation, frame: pl.DataFrame = FRAME) -> Any:
    return audit(frame, Contract("t", stated))


def test_rows_that_break_it_go_to_quarantine_with_its_name() -> None:
    by_date = said(DATES, column="day", strftime_format="%Y-%m-%d", mostly=0.5)
    found = judged(by_date)
    assert found.passed
    assert found.quarantined["day"].to_list() == ["soon"]
    assert found.quarantined[REASON].to_list() == [by_date.check_name]
    assert found.clean.height == 3, "a null is no date to judge"
    assert found.results[0].observed == pytest.approx(2 / 3)


def test_a_failed_warning_is_counted_once_beside_compiled_ones() -> None:
    by_date = said(DATES, "warning", column="day", strftime_format="%Y-%m-%d")
    odd = said("expect_column_values_to_be_between", "warning", column="n", max_value=1)
    low = said("expect_column_values_to_be_between", column="n", max_value=3, mostly=0.5)
    found = judged(by_date, odd, low)
    assert found.quarantined["n"].to_list() == [4]
    assert found.warned == 2, "rows 2 and 3; row 4 is in quarantine"


def test_a_statement_about_the_column_answers_with_a_python_truth() -> None:
    ranges = {"quantiles": [0.5], "value_ranges": [[2, 3]]}
    (result,) = judged(said(QUANTILES, column="n", quantile_ranges=ranges)).results
    assert result.passed is True
    assert result.rows_failed == 0
    ranges = {"quantiles": [0.5], "value_ranges": [[20, 30]]}
    assert judged(said(QUANTILES, column="n", quantile_ranges=ranges)).results[0].passed is False


def test_a_row_condition_narrows_what_the_engine_sees() -> None:
    meant = {"type": "comparison", "column": {"name": "n"}, "operator": "!=", "parameter": 2}
    found = judged(said(DATES, column="day", strftime_format="%Y-%m-%d", row_condition=meant))
    assert found.passed
    meant = {**meant, "operator": ">="}
    kwargs = {"column": "day", "strftime_format": "%Y-%m-%d", "mostly": 0.4}
    found = judged(said(DATES, **kwargs, row_condition=meant))
    assert found.quarantined["n"].to_list() == [2], "the right row, not the first of those meant"


def test_only_the_columns_that_are_named_are_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    real = expectations._validate

    def watched(frame: Any, own: Any) -> Any:
        seen.append(list(frame.columns))
        return real(frame, own)

    monkeypatch.setattr(expectations, "_validate", watched)
    judged(said(DATES, column="day", strftime_format="%Y-%m-%d", mostly=0.1))
    assert seen == [["day"]]


def test_a_table_over_the_limit_is_an_error_and_no_sample() -> None:
    by_date = said(DATES, column="day", strftime_format="%Y-%m-%d")
    with pytest.raises(ContractError, match=r"4 rows .* at most 3; they are never sampled"):
        expectations.judge(FRAME, [by_date], limit=3)


def test_an_expectation_that_could_not_be_judged_is_no_failure_of_the_data() -> None:
    of_text = said("expect_column_value_z_scores_to_be_less_than", column="day", threshold=3)
    with pytest.raises(ContractError, match="could not judge"):
        judged(Expectation(of_text.type, {**of_text.kwargs, "double_sided": True}, "critical", "z"))


def test_kwargs_that_the_package_refuses_are_found_before_any_table() -> None:
    stated = {"type": DATES, "kwargs": {"column": "day", "strftime": "%Y"}}
    contract = read_contract({"name": "t", "expectations": [stated]}, "a test")
    with pytest.raises(ContractError, match="strftime"):
        expectations.check_expectations(contract)


def test_where_the_package_is_missing_the_message_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expectations, "is_installed", lambda: False)
    expectations._load.cache_clear()
    with pytest.raises(ContractError, match=r"pip install .*\[expectations\]"):
        judged(said(DATES, column="day", strftime_format="%Y-%m-%d"))


def test_a_contract_of_compiled_types_never_imports_it() -> None:
    program = """
import sys, polars as pl
from ml_assets.assets.validated_table.contract.compiled import audit
from ml_assets.assets.validated_table.contract.suite import read_contract
stated = [{"type": "expect_column_values_to_match_regex", "kwargs": {"column": "a", "regex": "x"}},
          {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "n", "min_value": 1}}]
contract = read_contract({"name": "t", "expectations": stated}, "t")
audit(pl.DataFrame({"a": ["x"], "n": [1]}), contract)
print({"great_expectations", "pandas"} & set(sys.modules))
"""
    said = said_by(program)
    assert said.strip() == "set()"
