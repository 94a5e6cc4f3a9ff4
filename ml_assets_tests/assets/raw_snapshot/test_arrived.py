"""Partitions of a calendar that has passed end, in the UI, with what can have arrived."""

import multiprocessing
import time
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import ml_assets.pipelines
from ml_assets.actions.reload import reload_ui
from ml_assets.assets.raw_snapshot.readers.listing import arrived_until
from ml_assets.definitions import defs
from ml_assets.extras.demo.outside_world import WEEKS, lay_out
from ml_assets.spec.load import load_spec
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.store.layout import Address, published_partitions
from ml_assets.store.open import open_snapshots
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.ui import ask, serving
from ml_assets_tests.worlds.world import World

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten of the twelve weeks of deliveries have arrived."""
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ML_ASSETS_SOURCES", str(tmp_path / "sources"))
    monkeypatch.setenv("ML_ASSETS_PIPELINES", str(tmp_path / "pipelines"))
    deliveries.plant(tmp_path / "pipelines", tmp_path / "sources", weeks=10)
    return tmp_path


def spec_of(world: Path, was: str = "", becomes: str = "") -> PipelineSpec:
    file = world / "pipelines" / "deliveries" / "defs.yaml"
    file.write_text(file.read_text().replace(was, becomes))
    return load_spec(file.parent)


def until(world: Path, spec: PipelineSpec) -> date | None:
    return arrived_until(spec, world / "sources", NOW)


def test_they_end_with_the_newest_week_that_any_folder_holds(world: Path) -> None:
    assert until(world, spec_of(world)) == date(2024, 3, 11)
    deliveries.land(world / "sources", 11)
    (world / "sources" / "arrivals" / "2024-03-11.jsonl").unlink()  # half a delivery
    assert until(world, spec_of(world)) == date(2024, 3, 18)


def test_a_week_that_is_missing_amid_others_stays_to_be_seen(world: Path) -> None:
    (world / "sources" / "orders" / "2024-01-15.csv").unlink()
    assert until(world, spec_of(world)) is None


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("end: 2024-03-25, ", ""),
        ("end: 2024-03-25", "end: 2026-01-05"),
        ("path: orders/", "path: s3://bucket/orders/"),
    ],
)
def test_where_more_may_come_or_cannot_be_seen_from_here_they_are_those_of_the_spec(
    world: Path, was: str, becomes: str
) -> None:
    if "s3" in becomes:
        for file in (world / "sources" / "arrivals").iterdir():
            file.unlink()
    assert until(world, spec_of(world, was, becomes)) is None


@pytest.mark.daemon
def test_after_the_demo_no_week_is_grey(tmp_path: Path) -> None:
    lay_out(tmp_path)
    spec = load_spec(Path(ml_assets.pipelines.__path__[0]) / "flight_delays")
    assert WEEKS == 53
    assert arrived_until(spec, tmp_path, NOW) == date(2013, 12, 23)


def shown(stage: str, source: str | None = None) -> list[str]:
    """The partitions of an asset in what a server of Dagster loads."""
    key = dg.AssetKey(Address("deliveries", stage, source).key.split("/"))
    partitions = defs().get_repository_def().asset_graph.get(key).partitions_def
    assert partitions is not None
    return list(partitions.get_partition_keys())


def make(instance: Any, week: str) -> None:
    """What a process does that a server starts for a run."""
    key = dg.AssetKey(Address("deliveries", "raw_snapshot", "orders").key.split("/"))
    job = defs().resolve_implicit_global_asset_job_def().get_subset(asset_selection={key})
    with dg.DagsterInstance.from_ref(instance) as opened:
        job.execute_in_process(instance=opened, partition_key=week)


def test_a_landed_week_is_made_before_a_server_reads_anew_and_shown_after(world: Path) -> None:
    weeks = shown("raw_snapshot", "orders")
    assert (weeks[0], weeks[-1], len(weeks)) == ("2024-01-01", "2024-03-04", 10)
    assert shown("feature_set") == weeks[1:], "the first is only looked back at"
    deliveries.land(world / "sources", 11)
    with dg.instance_for_test(temp_dir=str(world)) as instance:
        spawn = multiprocessing.get_context("spawn")
        run = spawn.Process(target=make, args=(instance.get_ref(), "2024-03-11"))
        run.start()
        run.join()
    assert run.exitcode == 0
    store = open_snapshots(str(world / "state" / "snapshots"))
    address = Address("deliveries", "raw_snapshot", "orders")
    assert list(published_partitions(store, store.resolve("main"), address)) == ["2024-03-11"]
    assert shown("raw_snapshot", "orders") == [*weeks, "2024-03-11"]


RAW = """{ assetNodes(assetKeys: [{path: ["deliveries", "raw_snapshot", "raw_orders"]}]) {
  partitionStats { numPartitions numMaterialized } } }"""


def stats(address: str) -> tuple[int, int]:
    """How many partitions of the raw orders the UI shows, and how many of them are made."""
    (node,) = ask(address, RAW)["assetNodes"]
    told = node["partitionStats"]
    return told["numPartitions"], told["numMaterialized"]


def wait_for(world: World, address: str, weeks: int) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        store = open_snapshots(world.settings.snapshots)
        done = published_partitions(
            store, store.resolve("main"), Address("deliveries", "feature_set")
        )
        if len(list(done)) == weeks - 1 and stats(address)[1] >= min(weeks, stats(address)[0]):
            return
        time.sleep(2)
    raise AssertionError(f"{stats(address)}, {weeks} weeks have landed")


@pytest.mark.daemon
@pytest.mark.timeout(600)
def test_a_server_takes_in_what_landed_after_it_began_and_shows_it_when_it_reads_anew(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    automation = "{landing: {}}"
    deliveries.plant(world.pipelines, world.sources, weeks=3, automation=automation)
    with serving(world) as address:
        wait_for(world, address, 3)
        assert stats(address) == (3, 3), "no week is grey"
        deliveries.land(world.sources, 5)
        wait_for(world, address, 5)
        there = World(tmp_path, {"ML_ASSETS_UI_URL": address})
        assert reload_ui(there.settings) == f"{address} shows it"
        wait_for(world, address, 5)
        assert stats(address) == (5, 5)
