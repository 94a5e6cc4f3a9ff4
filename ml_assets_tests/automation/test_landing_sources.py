"""The landing sensor and sources that are late, broken, cleaned up or served again."""

import json
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.automation.tick_failures import COULD_NOT
from ml_assets.extras.online.open import open_online
from ml_assets.extras.online.store import Served
from ml_assets.settings import read_settings
from ml_assets.store.layout import Address
from ml_assets.store.open import open_snapshots
from ml_assets_tests.automation.conftest import LANDING, WEEKS, Plant
from ml_assets_tests.worlds import deliveries

ONLINE = "  online: {entity: [depot], look_back: 1}\n  label: "


def test_a_source_that_went_back_to_what_it_was_is_taken_in_again(plant: Plant):
    world = plant(2, LANDING)
    world.settle()
    orders = world.sources / "orders" / "2024-01-08.csv"
    first = orders.read_text()
    keys: list[str | None] = []
    for content in (first.replace("north", "west"), first) * 2:
        orders.write_text(content)
        (request,) = world.asks_for()
        assert request.tags["why"] == "sources [2024-01-08]: an input changed"
        assert world.execute(request)  # fails where the run key was used before
        keys.append(request.run_key)
        world.settle()
    assert len(set(keys)) == 4


def test_a_source_that_is_missing_is_named_and_the_cursor_stays(plant: Plant):
    world = plant(2, LANDING)
    world.settle()
    orders = world.sources / "orders"
    orders.rename(world.sources / "moved")
    before = world.cursors["landing"]
    assert world.says().startswith(COULD_NOT)
    assert str(orders) in world.says()
    assert world.cursors["landing"] == before


def test_a_file_that_is_still_being_written_holds_up_its_partition_only(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "ml_assets.assets.raw_snapshot.readers.arrived_files.QUIET", timedelta(days=1)
    )  # of a slow machine
    world = plant(2, LANDING)
    world.settle()
    deliveries.land(world.sources, 4)
    orders = world.sources / "orders" / "2024-01-15.csv"
    whole = orders.read_text()
    orders.write_text(whole[: len(whole) // 2].rstrip())
    (request,) = world.asks_for()
    assert request.tags["why"] == "sources [2024-01-22]: never made"
    assert world.execute(request)
    world.settle()
    said = world.says()
    assert "orders [2024-01-15] is skipped for now" in said
    assert "does not end with a line break yet" in said
    orders.write_text(whole)
    assert "the next check shows" in str(world.evaluate().skip_message)
    (request,) = world.asks_for()
    assert request.tags["why"] == "sources [2024-01-15]: never made"


def test_a_refused_file_fails_its_partition_and_not_the_tick(plant: Plant, tmp_path: Path):
    world = plant(2, LANDING)
    world.settle()
    deliveries.land(world.sources, 4)
    orders = world.sources / "orders" / "2024-01-15.csv"
    good = orders.read_text()
    orders.rename(tmp_path / "elsewhere.csv")
    orders.symlink_to(tmp_path / "elsewhere.csv")
    assert world.settle() == ["sources", "sources", "table_closed_orders"]
    assert world.published("validated_table", "orders") == [*WEEKS[:2], WEEKS[3]]
    assert "sources [2024-01-15] failed in run" in world.says()
    orders.unlink()
    orders.write_text(good)
    world.settle()
    assert world.published("raw_snapshot", "orders") == WEEKS


def test_a_late_record_is_a_new_version_and_the_old_one_stays_readable(plant: Plant):
    world = plant(2, LANDING)
    world.settle()
    store = open_snapshots(read_settings().snapshots)
    table = Address("deliveries", "raw_snapshot", "arrivals", WEEKS[1])
    then = store.resolve("main")
    before = store.scan(then, table.table).collect()
    arrivals = world.sources / "arrivals" / f"{WEEKS[1]}.jsonl"
    late = {"order": 10**6, "late": True, "arrived_at": "2024-01-20T00:00:00Z"}
    arrivals.write_text(arrivals.read_text() + json.dumps(late) + "\n")
    assert world.settle() == ["sources", "table_closed_orders", "features"]
    after = store.scan(store.resolve("main"), table.table).collect()
    assert after.height == before.height + 1
    assert store.scan(then, table.table).collect().equals(before)


def test_a_source_that_cleans_up_holds_up_nothing_and_is_not_read_again(plant: Plant):
    world = plant(3, "{landing: {}, on_code_change: true}")
    assert all(map(world.execute, world.asks_for()))  # the sources are read
    for file in ("orders/2024-01-01.csv", "orders/2024-01-08.csv", "arrivals/2024-01-08.jsonl"):
        (world.sources / file).unlink()  # and what is to come looks back at these
    assert world.settle() == ["table_closed_orders", "features"]
    assert world.published("feature_set") == WEEKS[1:3]
    assert world.says().startswith(
        "1 partition (2024-01-15 to 2024-01-15) landed in the sources of deliveries;"
        " 2 more stay as they were last read"
    )

    spec, orders = world.folder / "defs.yaml", world.sources / "orders" / "2024-01-15.csv"
    text, rows = spec.read_text(), orders.read_text()
    spec.write_text(text.replace("within: 0.2}", "within: 0.2}\n      settled: 1 day", 1))
    deliveries.deliver(orders, "".join(rows.splitlines(keepends=True)[:9]))
    assert (
        "everything that landed is published" in world.says()
    )  # so old a partition is not looked at again
    assert "everything that landed is published" in world.says(
        "code_change"
    )  # and to say so is no other code
    deliveries.deliver(orders, rows)

    spec.write_text(text.replace("within: 0.2", "within: 0.3"))  # reads orders anew
    asked = world.asks_for("code_change")
    keys = {request.tags["dagster/asset_partition_range_end"]: request for request in asked}
    raw = dg.AssetKey(["deliveries", "raw_snapshot", "raw_orders"])
    assert {week: raw in (r.asset_selection or ()) for week, r in keys.items()} == {
        "2024-01-08": False,
        "2024-01-15": True,
    }


@pytest.mark.daemon
def test_what_is_served_no_more_is_served_again_and_a_store_that_is_away_keeps_nothing_back(
    plant: Plant,
):
    world = plant(2, LANDING)
    spec = world.folder / "defs.yaml"
    spec.write_text(spec.read_text().replace("  label: ", ONLINE, 1))
    assert world.settle()[-1] == "online"
    file = Path(read_settings().online)

    def served() -> str | None:
        now = open_online(str(file)).current("deliveries")
        return now.version if now else None

    first = served()
    assert first
    file.unlink()  # before a tick has seen that the candidate came true
    (request,) = world.asks_for()
    assert request.tags["why"] == "online: the online store serves something else"
    assert world.execute(request)
    assert served() == first
    race = Served("deliveries", "another", ("depot",), {"depot": "String"}, 0)
    open_online(str(file)).serve(race, [])
    assert world.settle() == ["online"]
    assert served() == first
    assert "everything that landed is published" in world.says()

    file.write_text("this is no database, and no online store answers from it")
    for beside in ("-wal", "-shm"):  # a connection that is still open leaves its rows there
        file.with_name(file.name + beside).unlink(missing_ok=True)
    assert world.says().startswith(f"{COULD_NOT}The online store {file} cannot be used")
    deliveries.land(world.sources, 3)
    (request,) = world.asks_for()
    assert request.tags["why"] == "sources [2024-01-15]: never made"
