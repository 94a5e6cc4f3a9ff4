"""Volume: a partition with far more or fewer rows than those before it does not pass."""

import polars as pl
import pytest

from ml_assets.assets.validated_table.contract.compiled import audit
from ml_assets.assets.validated_table.contract.suite import Contract
from ml_assets.assets.validated_table.volume import compared_with, judge_volume
from ml_assets.spec.sources import VolumeSpec

DAYS = [f"2024-01-{day:02}" for day in range(1, 29)]


@pytest.mark.parametrize(
    ("rows", "passes"), [(100, True), (120, True), (80, True), (121, False), (79, False)]
)
def test_the_bound_is_relative_to_the_partition_before(rows: int, passes: bool) -> None:
    assert judge_volume(rows, {"w": 100}, VolumeSpec(within=0.2)).passed is passes


@pytest.mark.parametrize(("rows", "passes"), [(110, True), (111, False), (90, True), (89, False)])
def test_a_partition_at_the_bound_is_within_it_however_it_is_rounded(
    rows: int, passes: bool
) -> None:
    assert judge_volume(rows, {"w": 100}, VolumeSpec(within=0.1)).passed is passes


@pytest.mark.parametrize("before", [{}, {"w": 0}])
def test_the_first_partition_passes_and_says_why(before: dict[str, int]) -> None:
    result = judge_volume(5, before, VolumeSpec())
    assert result.passed
    assert "no earlier partition" in result.reason


def test_the_reason_names_both_counts_the_change_and_what_it_is_held_to() -> None:
    result = judge_volume(1500, {"2024-01-08": 1000}, VolumeSpec(within=0.2))
    for part in ("1,500", "1,000", "+50.0%", "2024-01-08", "the partition before"):
        assert part in result.reason
    assert result.details == {"usual": "1,000", "change": "+50.0%"}


def test_one_odd_period_does_not_move_the_median_of_several() -> None:
    spec = VolumeSpec(within=0.2, every=7, periods=3)
    weeks_before = {"a": 1000, "b": 10, "c": 1020}
    assert judge_volume(1010, weeks_before, spec).passed
    assert not judge_volume(10, weeks_before, spec).passed


def test_the_newest_published_partitions_are_compared_whatever_lies_between() -> None:
    published = ["2024-01-03", "2024-01-01", "2024-01-09"]
    assert compared_with("2024-01-08", published, DAYS, VolumeSpec()) == ("2024-01-03",)
    two = VolumeSpec(periods=2)
    assert compared_with("2024-01-08", published, DAYS, two) == ("2024-01-03", "2024-01-01")
    assert compared_with("2024-01-01", published, DAYS, two) == ()


def test_the_same_weekday_is_taken_by_the_calendar_and_a_gap_is_left_out() -> None:
    spec = VolumeSpec(every=7, periods=3)
    published = [day for day in DAYS if day != "2024-01-15"]
    assert compared_with("2024-01-22", published, DAYS, spec) == ("2024-01-08", "2024-01-01")
    assert compared_with("2024-01-03", published, DAYS, spec) == ()


def test_a_critical_failure_holds_every_row_back_and_loses_none() -> None:
    found = audit(pl.DataFrame({"a": [1, 2, 3]}), Contract("none", ()))
    held = found.with_result(judge_volume(3, {"w": 100}, VolumeSpec(severity="critical")))
    assert not held.passed
    assert held.clean.is_empty()
    assert held.quarantined["_reason"].to_list() == ["held back: volume failed"] * 3


def test_a_warning_publishes() -> None:
    found = audit(pl.DataFrame({"a": [1, 2, 3]}), Contract("none", ()))
    warned = found.with_result(judge_volume(3, {"w": 100}, VolumeSpec(severity="warning")))
    assert warned.passed
    assert len(warned.clean) == 3
    assert [r.passed for r in warned.results] == [False]
