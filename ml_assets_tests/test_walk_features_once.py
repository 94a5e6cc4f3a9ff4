"""One function makes features for training, for backfills and for one row: the walk proves it."""

import json
from collections.abc import Iterator

import pytest

from ml_assets.actions.read_table import read_table
from ml_assets.adapters.check_outcome import partition_verdicts
from ml_assets.errors import SpecError
from ml_assets.extras.online.features import look_up_text, open_features
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World

CAST = '.with_columns(pl.col("docks").cast(pl.Float64))'
CLOSED = f"""{CAST}
        .pipe(
            lambda rows: rows
            if rows.collect()["late"].has_nulls()
            else rows.with_columns(closed=pl.lit(1.0))
        )"""
ONLINE = "  online: {entity: [depot], look_back: 1}\n  label: "


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Deliveries, their features made and served."""
    root = tmp_path_factory.mktemp("once")
    deliveries.plant(root / "pipelines", root / "sources")
    spec = root / "pipelines" / "deliveries" / "defs.yaml"
    spec.write_text(spec.read_text().replace("  label: ", ONLINE, 1))
    world = World(root)
    said = world.cli("run", "deliveries", "--through", "online_features", "--verbose")
    assert "[pass] lookup_equals_batch: 3 rows equal" in said
    yield world


def test_what_is_looked_up_is_the_newest_row_of_the_batch(world: World) -> None:
    batch = read_table("deliveries/feature_set", settings=world.settings).collect()
    features = open_features("deliveries", world.settings)
    for depot in ("north", "south", "west"):
        newest = batch.filter(depot=depot).sort("ordered_at", "order").row(-1, named=True)
        found = features.look_up({"depot": depot})
        assert found == {name: newest[name] for name in found or {}}
        assert {"order", "ordered_at", "load", "docks", "recent_late"} <= set(found or {})
        assert "late" not in (found or {})
    assert features.look_up({"depot": "east"}) is None
    with pytest.raises(SpecError, match="looks features up by depot; given are order"):
        look_up_text(features, {"order": "7"})


def test_what_is_served_leads_back_to_the_partitions_that_it_was_made_from(world: World) -> None:
    made = next(s for s in world.status("deliveries")["stages"] if "online_features" in s["key"])
    newest = sorted(versions_of(world))[-2:]
    assert [i["partition"] for i in made["inputs"]] == newest


def test_a_store_that_was_lost_is_served_again_and_nothing_else_is_made(world: World) -> None:
    before = world.cli("data", "lookup", "deliveries", "depot=west", "--json")
    for file in (world.root / "state").glob("online.db*"):
        file.unlink()
    assert "serves no features" in world.cli("data", "lookup", "deliveries", "depot=west", code=1)
    said = world.cli("run", "deliveries", "--through", "online_features", "--verbose")
    assert [line.split()[1] for line in said.splitlines() if line.startswith("make ")] == [
        "deliveries/online_features:"
    ]
    assert json.loads(world.cli("data", "lookup", "deliveries", "depot=west", "--json")) == (
        json.loads(before)
    )


def test_a_function_that_looks_ahead_publishes_nothing(world: World) -> None:
    """From here on the pipeline is broken."""
    before = versions_of(world)
    newest = max(before)
    assert checks_of(world)[newest] == "passed"
    assert 1 <= len(checks_of(world)) <= 3
    file = world.pipelines / "deliveries" / "features.py"
    text = file.read_text()
    assert text.count('arrived_at") < window.start') == 1
    file.write_text(text.replace('arrived_at") < window.start', 'arrived_at") < window.end'))
    said = world.cli("run", "deliveries", "--through", "feature_set", code=1)
    assert "'recent_late' of" in said
    assert "uses what was not known yet" in said
    assert versions_of(world) == before, "not one partition is published"
    assert checks_of(world)[newest] == "failed"


def test_a_function_that_fails_on_the_day_of_a_decision_publishes_nothing(world: World) -> None:
    """It makes a column only where all orders have arrived, and the guard of the future warns."""
    before = versions_of(world)
    folder = world.pipelines / "deliveries"
    spec = (folder / "defs.yaml").read_text().replace("docks, recent", "docks, closed, recent", 1)
    loose = "  leaks: {future_events: {severity: warning}}\n  label: "
    (folder / "defs.yaml").write_text(spec.replace("  label: ", loose, 1))
    assert deliveries.FEATURES.count(CAST) == 1
    (folder / "features.py").write_text(deliveries.FEATURES.replace(CAST, CLOSED))
    for _ in range(2):
        said = world.cli("run", "deliveries", "--through", "feature_set", code=1)
        assert "replayed with what was known then, the function fails, as it would for a" in said
        assert "rows lack 'closed'" in said
        assert versions_of(world) == before, "not one partition is published"
        assert checks_of(world)[max(before)] == "failed"


def versions_of(world: World) -> dict[str, str]:
    stages = world.status("deliveries")["stages"]
    return {s["partition"]: s["version"] for s in stages if s["key"] == "deliveries/feature_set"}


def checks_of(world: World) -> dict[str, str]:
    """Partition -> what became of the newest parity check of it."""
    return {
        one.partition: "passed" if one.verdict == "pass" else "failed"
        for check in world.evaluations()
        if check.check_name == "parity"
        for one in partition_verdicts(check.metadata)
        if one.verdict != "not judged"
    }
