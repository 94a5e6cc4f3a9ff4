"""A column is declared with another type while a pipeline runs: old and new rows never meet."""

import re
import shutil
from pathlib import Path

import polars as pl
import pytest

from ml_assets.actions.read_table import read_table
from ml_assets.errors import SchemaChanged
from ml_assets.graph.inputs import scan_together
from ml_assets.settings import read_settings
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.automation.conftest import LANDING, WEEKS, Plant, World
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World as Folders

RUN = ("run", "deliveries", "--through", "feature_set")


def declare(world: World, old: str = "order: int64", new: str = "order: float64") -> None:
    spec = world.folder / "defs.yaml"
    spec.write_text(spec.read_text().replace(old, new))


def type_of(table: str, week: str, column: str = "order") -> pl.DataType:
    return read_table(f"deliveries/{table}", week).collect_schema()[column]


def spoil(world: World, week: str) -> None:
    """Deliver orders that their contract refuses."""
    file = world.sources / "orders" / f"{week}.csv"
    lines = [line.replace("north", "") for line in file.read_text().splitlines()]
    deliveries.deliver(file, "\n".join(lines) + "\n", deliveries.START)


def test_the_sensor_takes_every_partition_in_again_with_the_new_type(plant: Plant) -> None:
    """Two weeks are delivered again, and of the first week the orders are gone."""
    world = plant(4, LANDING)
    world.settle()
    (world.sources / "orders" / f"{WEEKS[0]}.csv").unlink()
    for week in WEEKS[1:3]:
        file = world.sources / "orders" / f"{week}.csv"
        deliveries.deliver(file, file.read_text().replace("north", "south"), deliveries.START)
    declare(world)

    requests = world.asks_for()
    whys = [request.tags["why"] for request in requests]
    assert all("its declared columns changed (order: int64 -> float64)" in w for w in whys)
    assert sum(w.count(week) for w in whys for week in (WEEKS[0], WEEKS[-1])) == 2
    for request in requests:
        assert world.execute(request)
    world.settle()

    assert "everything that landed is published" in world.says()
    assert {type_of("validated_table/orders", week) for week in WEEKS} == {pl.Float64()}
    assert {type_of("feature_set", week) for week in WEEKS[1:]} == {pl.Float64()}
    assert type_of("raw_snapshot/raw_orders", WEEKS[0]) == pl.Int64(), "as it was read"


def test_run_says_how_much_is_made_again_before_it_begins(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    plant_world = plant(3, LANDING)
    monkeypatch.setenv("DAGSTER_HOME", "")
    cli(*RUN)
    declare(plant_world)
    said = cli(*RUN).out
    before, _, _ = said.partition("\n> ")
    assert (
        "make  deliveries/raw_snapshot/raw_orders [2024-01-01 .. 2024-01-15: 3 partitions]:"
        " its declared columns changed (order: int64 -> float64)" in before
    )
    assert (
        "deliveries/validated_table/orders: 3 partitions with 719 rows made again because their "
        "columns changed, and 5 tables after them" in before
    )
    assert "took" in before and "ML_ASSETS_PRICES" not in before
    assert {type_of("feature_set", week) for week in WEEKS[1:3]} == {pl.Float64()}


def test_run_says_what_it_costs_in_time_and_money_with_the_training_that_follows(
    released: Folders, tmp_path: Path
) -> None:
    for name in ("state", "sources", "pipelines"):
        shutil.copytree(released.root / name, tmp_path / name)
    world = Folders(tmp_path, {**released.extra, "ML_ASSETS_PRICES": "node=3600"})  # 1 a second
    world.edit("deliveries", ("order: int64", "order: float64"))
    before, _, _ = world.cli("run", "deliveries", "--through", "raw_snapshot").partition("\n> ")
    took = re.search(
        r"note  the last time, these tables took ([\d.]+) s \(([\d.]+)\),"
        r" and the last training ([\d.]+) s",
        before,
    )
    assert took, before
    tables, money, training = map(float, took.groups())
    assert training > 0 and tables > 0 and money == pytest.approx(tables, abs=0.1)


def test_a_week_that_is_refused_keeps_back_what_reads_it_and_no_other(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """Its table has the old type still: nothing reads it beside the new ones."""
    world = plant(4, LANDING)
    monkeypatch.setenv("DAGSTER_HOME", "")
    cli(*RUN)
    declare(world)
    spoil(world, WEEKS[1])
    told = cli(*RUN, code=1)
    assert "critical expectation" in told.err
    assert "type" not in told.err.replace("types", ""), "no words of polars"
    assert type_of("validated_table/orders", WEEKS[1]) == pl.Int64()
    types = [type_of("feature_set", week) for week in WEEKS[1:]]
    assert types == [pl.Int64(), pl.Int64(), pl.Float64()]

    state = open_pipeline("deliveries", read_settings()).now()
    address = state.address("feature_set")
    with pytest.raises(SchemaChanged, match=r"2 of 3 partitions .* \(order: Int64 -> Float64\)"):
        scan_together(state, [address.at(week) for week in WEEKS[1:]])


def test_a_snapshot_that_cannot_have_the_new_type_says_so(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    world = plant(3, LANDING)
    monkeypatch.setenv("DAGSTER_HOME", "")
    cli(*RUN)
    (world.sources / "orders" / f"{WEEKS[0]}.csv").unlink()
    declare(world, "load: float64", "load: int64")
    for week in WEEKS[1:3]:
        file = world.sources / "orders" / f"{week}.csv"
        frame = pl.read_csv(file).with_columns(pl.col("load").round().cast(pl.Int64))
        deliveries.deliver(file, frame.write_csv(), deliveries.START)
    said = cli(*RUN, code=1).err
    assert f"deliveries/raw_snapshot/raw_orders [{WEEKS[0]}] does not have the types" in said
    assert "'load' is Float64, declared as int64" in said
