"""Freshness is by the newest row's own time: a row from the future proves nothing."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from ml_assets.assets.validated_table.freshness import Newest, judge_freshness, newest_row
from ml_assets.spec.sources import FreshnessSpec

NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)
SPEC = FreshnessSpec(within=timedelta(days=2))


def rows(*times: datetime | None) -> pl.LazyFrame:
    return pl.LazyFrame({"at": times}, schema={"at": pl.Datetime("us", "UTC")})


@pytest.mark.parametrize(("hours", "fresh"), [(0, True), (47, True), (48, True), (49, False)])
def test_the_age_of_the_newest_row_is_held_to_the_bound(hours: int, fresh: bool) -> None:
    newest = Newest(NOW - timedelta(hours=hours), "2024-02-26")
    found = judge_freshness(newest, NOW, SPEC)
    assert found.fresh is fresh
    assert "2024-02-26" in found.reason and "2 days" in found.reason


def test_a_row_from_the_future_makes_nothing_fresh_and_is_counted() -> None:
    old, coming = NOW - timedelta(days=30), NOW + timedelta(days=1)
    assert newest_row(rows(old, coming, coming, None), "at", NOW) == (old, 2)
    found = judge_freshness(Newest(old, None, 2), NOW, SPEC)
    assert not found.fresh
    assert "2 rows are from the future" in found.reason


def test_a_table_without_a_row_up_to_now_is_not_fresh() -> None:
    assert newest_row(rows(NOW + timedelta(hours=1)), "at", NOW) == (None, 1)
    assert newest_row(rows(), "at", NOW) == (None, 0)
    assert not judge_freshness(Newest(None, None), NOW, SPEC).fresh
