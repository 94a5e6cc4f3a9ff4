"""A source whose rows stop coming turns its check red by itself, and green when they come again.

Freshness is by the newest row's own time: a row from the future proves nothing.
"""

from datetime import UTC, datetime, timedelta

import dagster as dg
import polars as pl
import pytest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from ml_assets.automation.freshness import (
    Newest,
    freshness_tick,
    judge_freshness,
    newest_row,
    source_freshness,
)
from ml_assets.errors import StoreAway
from ml_assets.graph.publish import Draft, Work
from ml_assets.settings import read_settings
from ml_assets.spec.sources import FreshnessSpec
from ml_assets.store.layout import Address
from ml_assets.store.open import open_snapshots
from ml_assets_tests.automation.conftest import Plant, World
from ml_assets_tests.worlds.opened import pipeline_of

ARRIVALS = dg.AssetKey(["deliveries", "validated_table", "arrivals"])
NOW = datetime(2024, 1, 16, tzinfo=UTC)
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


@pytest.fixture
def world(plant: Plant) -> World:
    """Arrivals may be two days old; two weeks of them are published, up to the 16th or so."""
    world = plant(2, "{}")
    spec = world.folder / "defs.yaml"
    bound = "known_at: arrived_at\n      freshness: {within: 2 days, severity: critical}"
    spec.write_text(spec.read_text().replace("known_at: arrived_at", bound))
    return world


def publish(week: str, *times: datetime) -> None:
    store = open_snapshots(read_settings().snapshots)
    address = Address("deliveries", "validated_table", "arrivals", week)
    frame = pl.DataFrame({"order": range(len(times)), "arrived_at": times})
    pipeline = pipeline_of(store=store)
    with Draft(pipeline, Work(address, "c", (), week), store.resolve()) as draft:
        draft.table(frame, ["order"])
        draft.publish(attributes={})


def fresh(world: World, now: datetime) -> bool:
    return source_freshness(world.graph, "arrivals", now).fresh


def test_the_newest_partition_counts_not_when_it_was_made(world: World) -> None:
    assert not fresh(world, NOW), "nothing is published"
    publish("2024-01-01", NOW - timedelta(days=9))
    publish("2024-01-08", NOW - timedelta(days=1))
    assert fresh(world, NOW)
    assert not fresh(world, NOW + timedelta(days=2))
    publish("2024-01-01", NOW + timedelta(days=1))
    assert not fresh(world, NOW + timedelta(days=2)), "an older partition was only made again"


def test_a_row_from_the_future_does_not_make_it_fresh(world: World) -> None:
    publish("2024-01-01", NOW - timedelta(days=9))
    publish("2024-01-08", NOW + timedelta(days=300))
    assert not fresh(world, NOW)


def test_the_sensor_reports_a_change_once_and_again_when_rows_come(world: World) -> None:
    publish("2024-01-08", NOW - timedelta(days=1))
    green = freshness_tick(world.graph, world.instance, None, NOW)
    assert shown(world, green) == AssetCheckExecutionRecordStatus.SUCCEEDED
    quiet = freshness_tick(world.graph, world.instance, green.cursor, NOW + timedelta(hours=1))
    assert quiet.asset_events == []
    later = NOW + timedelta(days=3)
    red = freshness_tick(world.graph, world.instance, quiet.cursor, later)
    assert shown(world, red) == AssetCheckExecutionRecordStatus.FAILED
    publish("2024-01-15", later)
    again = freshness_tick(world.graph, world.instance, red.cursor, later)
    assert shown(world, again) == AssetCheckExecutionRecordStatus.SUCCEEDED


def test_a_store_that_is_away_tells_nothing_of_the_data(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreAway("lakeFS does not answer")

    publish("2024-01-08", NOW - timedelta(days=1))
    green = freshness_tick(world.graph, world.instance, None, NOW)
    graph = world.graph
    monkeypatch.setattr(graph.store, "resolve", away)
    found = freshness_tick(graph, world.instance, green.cursor, NOW)
    assert not found.asset_events
    assert found.cursor == green.cursor
    assert "could not check: lakeFS does not answer" in str(found.skip_reason)


def test_it_is_said_again_after_each_partition_of_a_run_which_would_outdate_it(
    world: World,
) -> None:
    publish("2024-01-08", NOW - timedelta(days=1))
    cursor = None
    for week in ("2024-01-01", "2024-01-08"):
        made = dg.AssetMaterialization(ARRIVALS, partition=week)
        world.instance.report_runless_asset_event(made)
        found = freshness_tick(world.graph, world.instance, cursor, NOW)
        assert shown(world, found) == AssetCheckExecutionRecordStatus.SUCCEEDED
        cursor = found.cursor


def test_the_check_and_its_sensor_are_there_only_for_sources_with_a_bound(world: World) -> None:
    names = {sensor.name for sensor in world.defs.sensors or ()}
    assert "deliveries__freshness" in names
    keys = {
        key.name
        for check in world.defs.asset_checks or ()
        for key in getattr(check, "check_keys", ())
    }
    assert "freshness" in keys


def shown(world: World, found: object) -> AssetCheckExecutionRecordStatus:
    """What the UI shows after a tick's events."""
    (event,) = found.asset_events  # pyright: ignore[reportAttributeAccessIssue]
    world.instance.report_runless_asset_event(event)
    (record,) = world.instance.event_log_storage.get_asset_check_execution_history(
        event.asset_check_key, limit=1
    )
    return record.status
