"""A contract is read whole or refused with all its mistakes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ml_assets.assets.validated_table.contract.suite import (
    SUPPORTED,
    load_contract,
    unknown_columns,
)
from ml_assets.errors import ContractError

PIPELINE = Path(__file__).parents[3] / "ml_assets" / "pipelines" / "flight_delays"


def write(folder: Path, *expectations: dict[str, Any], **extra: Any) -> Path:
    path = folder / "contract.json"
    path.write_text(json.dumps({"name": "t", "expectations": list(expectations), **extra}))
    return path


def not_null(column: str = "a", **extra: Any) -> dict[str, Any]:
    return {
        "type": "expect_column_values_to_not_be_null",
        "kwargs": {"column": column},
        **extra,
    }


def refusal(path: Path) -> str:
    with pytest.raises(ContractError) as caught:
        load_contract(path)
    return str(caught.value)


def test_severity_is_critical_unless_it_says_warning(tmp_path: Path):
    contract = load_contract(write(tmp_path, not_null(), not_null("b", severity="warning")))
    assert [e.severity for e in contract.expectations] == ["critical", "warning"]


def test_a_check_name_is_safe_for_dagster_and_follows_the_kwargs(tmp_path: Path):
    def name(**kwargs: Any) -> str:
        entry = {"type": "expect_column_values_to_not_be_null", "kwargs": kwargs}
        return load_contract(write(tmp_path, entry)).expectations[0].check_name

    plain = name(column="tail number-é")
    assert re.fullmatch("[A-Za-z0-9_]+", plain)
    assert plain.startswith("not_null__tail_number")
    assert plain == name(column="tail number-é")
    assert plain == name(column="tail number-é", mostly=None), "null means not given"
    assert plain != name(column="tail number-é", mostly=0.5)


def test_an_unknown_type_names_the_supported_ones(tmp_path: Path):
    entry = {"type": "expect_column_values_to_be_nul", "kwargs": {"column": "a"}}
    message = refusal(write(tmp_path, entry))
    assert "Did you mean 'expect_column_values_to_be_null'?" in message
    assert all(supported in message for supported in SUPPORTED)


def test_all_mistakes_are_reported_at_once(tmp_path: Path):
    message = refusal(
        write(
            tmp_path,
            not_null(severty="warning"),
            not_null("b", severity="info"),
            {"type": "expect_column_values_to_be_between", "kwargs": {"column": "a", "min": 1}},
            {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "a", "mostly": 2}},
        )
    )
    for part in ("severty", "'info'", "'min'", "min_value", "value_set", "mostly is 2"):
        assert part in message


@pytest.mark.parametrize(
    "kwargs",
    [
        {"column": "a", "row_condition": "b > 1"},
        {"column": "a", "row_condition": {"type": "comparison", "column": {"name": "b"}}},
        {"column": "a", "row_condition": {"type": "and", "conditions": []}},
        {"column": 3},
        {"column": "a", "mostly": True},
        {},
    ],
)
def test_kwargs_that_would_change_the_meaning_are_refused(tmp_path: Path, kwargs: dict[str, Any]):
    refusal(write(tmp_path, {"type": "expect_column_values_to_not_be_null", "kwargs": kwargs}))


@pytest.mark.parametrize(
    ("kind", "kwargs", "said"),
    [
        ("expect_table_row_count_to_be_between", {"min_value": "2"}, "min_value is '2'"),
        ("expect_table_column_count_to_be_between", {"max_value": "2"}, "max_value is '2'"),
        (
            "expect_column_unique_value_count_to_be_between",
            {"column": "a", "min_value": "2"},
            "min_value is '2'; a number of 64 bits",
        ),
        (
            "expect_column_value_lengths_to_be_between",
            {"column": "a", "max_value": 10**30},
            f"max_value is {10**30}; a number of 64 bits",
        ),
        ("expect_column_value_lengths_to_equal", {"column": "a", "value": 10**40}, "value is 1000"),
        (
            "expect_column_values_to_be_in_set",
            {"column": "a", "value_set": [1, float("nan")]},
            "value_set is [1, nan]; in JSON a number is finite",
        ),
        (
            "expect_column_values_to_be_between",
            {"column": "a", "min_value": 10**400},
            "a finite number, or a time as text",
        ),
    ],
)
def test_a_number_that_no_table_compares_with_is_refused(
    tmp_path: Path, kind: str, kwargs: dict[str, Any], said: str
):
    assert said in refusal(write(tmp_path, {"type": kind, "kwargs": kwargs}))


def test_the_same_statement_twice_is_refused(tmp_path: Path):
    assert "twice" in refusal(write(tmp_path, not_null(), not_null(severity="warning")))


def test_a_missing_or_broken_file_is_named(tmp_path: Path):
    assert "absent.json" in refusal(tmp_path / "absent.json")
    broken = tmp_path / "broken.json"
    broken.write_text('{"name": "t", ')
    assert "broken.json is not valid JSON" in refusal(broken)
    assert "an expectation suite" in refusal(write(tmp_path))


def test_a_column_the_table_lacks_is_found(tmp_path: Path):
    contract = load_contract(write(tmp_path, not_null("a"), not_null("z")))
    (problem,) = unknown_columns(contract, ["a", "b"])
    assert "'z'" in problem


@pytest.mark.parametrize("path", sorted(PIPELINE.glob("contracts/*.json")), ids=lambda p: p.stem)
def test_the_default_pipelines_contracts_are_readable(path: Path):
    contract = load_contract(path)
    assert contract.name == path.stem
    assert any(e.severity == "critical" for e in contract.expectations)
