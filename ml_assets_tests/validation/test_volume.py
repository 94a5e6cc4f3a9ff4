"""Volume: a partition with far more or fewer rows than the one before does not pass."""

import polars as pl
import pytest

from ml_assets.spec.sources import VolumeSpec
from ml_assets.validation.compiled import audit
from ml_assets.validation.contract import Contract
from ml_assets.validation.volume import judge_volume


@pytest.mark.parametrize(
    ("rows", "passes"), [(100, True), (120, True), (80, True), (121, False), (79, False)]
)
def test_the_bound_is_relative_to_the_partition_before(rows: int, passes: bool) -> None:
    assert judge_volume(rows, 100, VolumeSpec(within=0.2)).passed is passes


@pytest.mark.parametrize("before", [None, 0])
def test_the_first_partition_passes_and_says_why(before: int | None) -> None:
    result = judge_volume(5, before, VolumeSpec())
    assert result.passed
    assert "no partition before" in result.reason


def test_the_reason_names_both_counts_and_the_change() -> None:
    reason = judge_volume(1500, 1000, VolumeSpec(within=0.2)).reason
    assert "1,500" in reason
    assert "1,000" in reason
    assert "+50.0%" in reason


def test_a_critical_failure_holds_every_row_back_and_loses_none() -> None:
    found = audit(pl.DataFrame({"a": [1, 2, 3]}), Contract("none", ()))
    held = found.with_result(judge_volume(3, 100, VolumeSpec(severity="critical")))
    assert not held.passed
    assert held.clean.is_empty()
    assert held.quarantined["_reason"].to_list() == ["held back: volume failed"] * 3


def test_a_warning_publishes() -> None:
    found = audit(pl.DataFrame({"a": [1, 2, 3]}), Contract("none", ()))
    warned = found.with_result(judge_volume(3, 100, VolumeSpec(severity="warning")))
    assert warned.passed
    assert len(warned.clean) == 3
    assert [r.passed for r in warned.results] == [False]
