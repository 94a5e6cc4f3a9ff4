"""The whole walk with its snapshots on a lakeFS server: bit for bit what the embedded one gives."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ml_assets_tests.servers.lakefs import LakeFSServer, lakefs_server
from ml_assets_tests.servers.lakefs.repository import Repository
from ml_assets_tests.worlds import deliveries, flight_pods, irises
from ml_assets_tests.worlds.flight_pods import begin
from ml_assets_tests.worlds.lakefs import new_repository
from ml_assets_tests.worlds.world import World


@pytest.fixture(scope="module")
def server() -> Iterator[LakeFSServer]:
    with lakefs_server() as server:
        yield server


@pytest.fixture(scope="module")
def on_lakefs(server: LakeFSServer, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A model is released; its snapshots are on the server."""
    root = tmp_path_factory.mktemp("on-lakefs")
    world = World(root, new_repository(server, root / "state")).plant(irises)
    world.cli("run", "irises")
    return world


@pytest.fixture(scope="module")
def embedded(on_lakefs: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The same from the same sources, with the snapshots in a folder."""
    root = tmp_path_factory.mktemp("embedded")
    same = {
        "ML_ASSETS_SOURCES": str(on_lakefs.sources),
        "ML_ASSETS_PIPELINES": str(on_lakefs.pipelines),
    }
    world = World(root, same)
    world.cli("run", "irises")
    return world


def repository(server: LakeFSServer) -> Repository:
    (found,) = server.catalog.repositories.values()
    return found


def test_the_snapshots_are_on_the_server_and_nowhere_else(
    on_lakefs: World, server: LakeFSServer
) -> None:
    state = on_lakefs.root / "state"
    assert not (state / "snapshots").exists()
    assert not [*state.rglob("data.parquet")]
    paths = repository(server).tree("main")
    assert "tables/irises/feature_set/all/data.parquet" in paths
    work = [name for name in repository(server).branches if name.startswith("ml-assets-work-")]
    assert work == [], "the branches of the work are gone"


def test_every_data_version_and_the_model_are_the_same_bit_for_bit(
    on_lakefs: World, embedded: World
) -> None:
    one, other = (world.status("irises") for world in (on_lakefs, embedded))
    assert versions(one) == versions(other)
    assert ("irises/trained_model", None) in versions(one)
    assert weights(on_lakefs) == weights(embedded)
    for said in ("version", "metrics"):
        assert one["release"][said] == other["release"][said]


def versions(status: dict[str, Any]) -> dict[tuple[str, str | None], str]:
    """Of every stage but the checkpoints: torch gives each save an id, so no two are equal."""
    found = {(stage["key"], stage["partition"]): stage["version"] for stage in status["stages"]}
    del found[f"{status['pipeline']}/checkpoints", None]
    return found


def weights(world: World) -> dict[str, bytes]:
    """Name -> bytes, of the weights of every model."""
    folder = world.root / "state" / "objects" / "models"
    found = {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*.safetensors")}
    assert found
    return found


def test_the_release_has_a_name_that_people_can_say(on_lakefs: World, server: LakeFSServer) -> None:
    assert "irises-release-1" in repository(server).tags
    said = on_lakefs.cli("data", "read", "irises/feature_set", "--version", "irises-release-1")
    assert "150 rows" in said
    since = on_lakefs.cli("data", "diff", "release-1")
    assert since.split() == ["added", "irises/released_model"], "the line of the ledger came first"


def test_what_was_made_is_not_made_again(on_lakefs: World, server: LakeFSServer) -> None:
    before = server.faults.count("POST", "/merge/main")
    on_lakefs.cli("run", "irises")
    assert server.faults.count("POST", "/merge/main") == before


def test_the_state_on_the_server_is_verified_and_no_secret_lies_anywhere(
    on_lakefs: World, server: LakeFSServer
) -> None:
    said = on_lakefs.cli("release", "verify", "irises") + on_lakefs.cli("ops", "gc", "--dry-run")
    assert "refused" not in said
    assert "for the server's own garbage collection" in said
    assert server.secret_key not in said
    state = on_lakefs.root / "state"
    for file in (file for file in state.rglob("*") if file.is_file()):
        assert server.secret_key.encode() not in file.read_bytes(), file


def plant_deliveries(world: World) -> None:
    deliveries.plant(world.pipelines, world.sources)


@pytest.mark.daemon
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("pipeline", "plant", "table"),
    [
        ("deliveries", plant_deliveries, "orders"),
        (flight_pods.NAME, flight_pods.plant, "flights"),
    ],
    ids=["twelve weeks of three sources", "ten weeks of the real flights"],
)
def test_partitions_events_look_back_and_bad_rows_are_the_same_too(
    server: LakeFSServer,
    tmp_path: Path,
    pipeline: str,
    plant: Callable[[World], None],
    table: str,
) -> None:
    """And a proof from the snapshots on the server."""
    one = World(tmp_path / "one", new_repository(server, tmp_path / "one" / "state"))
    plant(one)
    same = {"ML_ASSETS_SOURCES": str(one.sources), "ML_ASSETS_PIPELINES": str(one.pipelines)}
    other = World(tmp_path / "other", same)
    other.root.mkdir()
    for world in (one, other):
        begin(world, "run", pipeline).ends()
    found = [versions(world.status(pipeline)) for world in (one, other)]
    assert found[0] == found[1]
    assert weights(one) == weights(other)
    begin(one, "release", "prove", pipeline, "--from-snapshots").ends()
    kept = [world.cli("data", "read", f"{pipeline}/quarantine/{table}") for world in (one, other)]
    assert kept[0] == kept[1]
