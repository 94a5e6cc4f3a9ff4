"""One function makes features for training, for backfills and for one row: the walk holds it to that."""

from pathlib import Path

import dagster as dg
import pytest

from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    deliveries.plant(tmp_path / "pipelines", tmp_path / "sources")
    return World(tmp_path)


def change(world: World, old: str, new: str) -> None:
    file = world.pipelines / "deliveries" / "features.py"
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def test_rows_are_replayed_before_they_are_published_and_a_leak_publishes_nothing(
    world: World,
) -> None:
    world.cli("run", "deliveries", "--through", "feature_set")
    before = {s["partition"]: s["version"] for s in features_of(world)}
    assert len(before) == deliveries.WEEKS - 1
    newest = max(before)
    assert checks_of(world)[newest] == "passed"
    assert 1 <= len(checks_of(world)) <= 3
    change(world, 'arrived_at") < window.start', 'arrived_at") < window.end')
    said = world.cli("run", "deliveries", "--through", "feature_set", code=1)
    assert "'recent_late' of" in said
    assert "uses what was not known yet" in said
    assert {s["partition"]: s["version"] for s in features_of(world)}[newest] == before[newest]
    assert checks_of(world)[newest] == "failed"


def features_of(world: World) -> list[dict[str, str]]:
    stages = world.status("deliveries")["stages"]
    return [s for s in stages if s["key"] == "deliveries/feature_set"]


def checks_of(world: World) -> dict[str, str]:
    """Partition -> what became of the newest parity check of it."""
    with world.instance() as instance:
        events = instance.event_log_storage.get_event_records(
            dg.EventRecordsFilter(dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        )
    found: dict[str, str] = {}
    for record in reversed(events):
        event = record.event_log_entry.dagster_event
        assert event is not None
        outcome = event.asset_check_evaluation_data
        if outcome.check_name == "parity" and outcome.partition:
            found[outcome.partition] = "passed" if outcome.passed else "failed"
    return found
