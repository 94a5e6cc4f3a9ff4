"""Placement: a row whose time is not in its partition is told, for no feature is made of it."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from ml_assets.assets.validated_table.placement import judge_placement
from ml_assets.spec.partitions import PartitionWindow

START = datetime(2024, 3, 5, tzinfo=UTC)
DAY = PartitionWindow("2024-03-05", START, START + timedelta(days=1))


def judged(*hours: float | None):
    at = [None if hour is None else START + timedelta(hours=hour) for hour in hours]
    rows = pl.LazyFrame({"at": at}, schema={"at": pl.Datetime("us", "UTC")})
    return judge_placement(rows, "at", DAY, "America/New_York")


@pytest.mark.parametrize("hours", [(), (0, 12, 23.999)])
def test_rows_of_the_partition_pass(hours: tuple[float, ...]) -> None:
    result = judged(*hours)
    assert result.passed
    assert result.rows_failed == 0
    assert result.reason == (
        "each at lies in the partition 2024-03-05, 2024-03-05 00:00 to 2024-03-06 00:00 UTC"
    )


@pytest.mark.parametrize("hour", [-0.001, 24, 8760, None])
def test_a_row_at_or_over_the_edge_or_without_a_time_does_not(hour: float | None) -> None:
    result = judged(3, hour)
    assert not result.passed
    assert (result.rows_failed, result.severity) == (1, "warning")


def test_the_reason_counts_them_and_names_the_zone_to_look_at() -> None:
    said = judged(1, 2, 25, 29, None).reason
    for part in (
        "3 of 5 rows have a at outside",
        "from «2024-03-06 01:00:00» to «2024-03-06 05:00:00»",
        "cut in another zone than America/New_York, correct partitions.timezone",
    ):
        assert part in said
    assert "outside" in judged(None).reason
