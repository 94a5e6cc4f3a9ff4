"""Rows in are rows out and rows kept back, each with its reason; a person may let them go later."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from ml_assets.actions.quarantine import kept_rows
from ml_assets.actions.read_table import read_table
from ml_assets.assets.validated_table.snapshot_audit import records_before
from ml_assets.cli.main import main
from ml_assets.definitions import build
from ml_assets.graph.publish import Draft, Work
from ml_assets.settings import read_settings
from ml_assets.spec.recalls import RELEASE_REASON, RELEASED_BY
from ml_assets.spec.records import StageRecord
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.layout import Address, published_partitions, read_record
from ml_assets.store.open import open_snapshots
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.opened import pipeline_of
from ml_assets_tests.worlds.world import World

WEEK, NEXT = "2024-01-01", "2024-01-08"
RUN = ("run", "deliveries", "--through", "validated_table")
RELEASE = ("data", "quarantine", "release", "deliveries", "orders")
BY = ("--author", "Ada", "--reason", "lorries are bigger now")


def planted(root: Path, patch: pytest.MonkeyPatch) -> World:
    """Two weeks of orders; of the first, one load is 5,000 and another is 99,999."""
    world = World(root).plant(deliveries, weeks=2)
    for name in ("ML_ASSETS_HOME", "ML_ASSETS_SOURCES", "ML_ASSETS_PIPELINES"):
        patch.setenv(name, world.environment[name])
    patch.setenv("DAGSTER_HOME", "")
    rewrite(world, WEEK, lambda number, row: {**row, "load": "99999"} if number == 7 else row)
    return world


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return planted(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The same, run; it is read and not changed."""
    with pytest.MonkeyPatch.context() as patch:
        world = planted(tmp_path_factory.mktemp("published"), patch)
        assert main(RUN) == 0
        yield world


Row = dict[str, str]


def rewrite(world: World, week: str, change: Callable[[int, Row], Row]) -> None:
    file = world.sources / "orders" / f"{week}.csv"
    with file.open(newline="") as handle:
        rows = [change(number, row) for number, row in enumerate(csv.DictReader(handle))]
    with file.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def contract(world: World, **load: object) -> None:
    """What a load has to be from now on."""
    kwargs = {"column": "load", "min_value": 0, "max_value": 100, "mostly": 0.99, **load}
    kind = "expect_column_values_to_be_between"
    suite = {"name": "orders", "expectations": [{"type": kind, "kwargs": kwargs}]}
    (world.pipelines / "deliveries" / "orders.json").write_text(json.dumps(suite))


def record(week: str = WEEK) -> StageRecord:
    store = open_snapshots(read_settings().snapshots)
    address = Address("deliveries", "validated_table", "orders", week)
    found = read_record(store, store.resolve("main"), address)
    assert found is not None
    return found


def rows(stage: str, week: str = WEEK) -> pl.DataFrame:
    return read_table(Address("deliveries", stage, "orders").key, week).collect()


def checks(world: World, stage: str) -> dict[str, list[dg.AssetCheckEvaluation]]:
    """Check -> its evaluations on the orders, oldest first."""
    found: dict[str, list[dg.AssetCheckEvaluation]] = {}
    key = dg.AssetKey(Address("deliveries", stage, "orders").key.split("/"))
    with world.instance() as instance:
        for run in reversed(instance.get_runs()):
            for entry in instance.all_logs(run.run_id, dg.DagsterEventType.ASSET_CHECK_EVALUATION):
                assert entry.dagster_event
                data: Any = entry.dagster_event.event_specific_data
                if data.asset_key == key:
                    found.setdefault(data.check_name, []).append(data)
    return found


@pytest.mark.usefixtures("published")
def test_every_row_that_came_in_is_published_or_kept_back_with_its_reason() -> None:
    clean, kept = rows("validated_table"), rows("quarantine")
    assert sorted([*clean["order"], *kept["order"]]) == rows("raw_snapshot")["order"].to_list()
    assert kept["load"].to_list() == [5000.0, 99999.0]
    (reason,) = set(kept["_reason"])
    assert record().attributes["reasons"] == {reason: 2}
    assert record().attributes["quarantined"] == 2
    assert "releases" not in record().attributes


def test_each_partition_has_its_version_and_rows_and_the_newest_one_the_page(
    published: World,
) -> None:
    """What is big, or the same for all, is not kept once for each partition of a range."""
    key = dg.AssetKey(["deliveries", "validated_table", "orders"])
    shown: dict[str, dg.AssetMaterialization] = {}
    with published.instance() as instance:
        for one in instance.fetch_materializations(key, limit=10).records:  # newest first
            assert one.partition_key and one.asset_materialization
            assert one.partition_key not in shown, "it is reported twice"
            shown[one.partition_key] = one.asset_materialization
    assert sorted(shown) == [WEEK, NEXT]
    for week, made in shown.items():
        assert (made.tags or {})["dagster/data_version"] == record(week).data_version
        assert made.metadata["dagster/row_count"].value == record(week).rows
        assert {"snapshot", "dagster/uri", "inputs", "card", "quarantined"} <= set(made.metadata)
    page = {"dagster/column_schema", "preview", "data_card", "pictures"}
    assert page <= set(shown[NEXT].metadata)
    assert not page & set(shown[WEEK].metadata)


def test_rows_that_pass_after_a_fix_are_released_and_the_rest_stays(world: World, cli: Cli) -> None:
    cli(*RUN)
    before = record()
    assert "2 rows were audited again and none passes" in cli(*RELEASE, *BY, code=1).err
    assert record() == before, "nothing was published"

    contract(world, max_value=6000)
    assert "1 row released, 1 stay in quarantine" in cli(*RELEASE, *BY).out
    after = record()
    assert after.data_version != before.data_version
    assert rows("quarantine")["load"].to_list() == [99999.0]
    assert 5000.0 in rows("validated_table")["load"]
    (said,) = after.attributes["releases"]
    assert (said["author"], said["reason"]) == ("Ada", "lorries are bigger now")
    assert said["rows"] == 1

    shown = cli("data", "quarantine", "show", "deliveries", "orders").out
    assert "1 of 240" in shown
    assert "1 released by Ada on" in shown

    told = cli(*RUN).out
    assert f"skip  deliveries/validated_table/orders [{WEEK}]: same code, same inputs" in told
    contract(world, max_value=100_000)
    cli(*RUN)
    assert record().attributes["quarantined"] == 0
    assert record().attributes["releases"] == [said], "a later version still tells of it"


def test_a_table_that_failed_as_a_whole_is_released_as_one(world: World, cli: Cli) -> None:
    contract(world, max_value=50, mostly=0.9)
    assert "ml-assets data quarantine show deliveries orders" in cli(*RUN, code=1).err
    store = open_snapshots(read_settings().snapshots)
    assert [(kept.partition, kept.published) for kept in kept_rows(store, "deliveries")] == [
        (WEEK, False),
        (NEXT, False),
    ]
    assert "all 240, rejected" in cli("data", "quarantine", "show", "deliveries").out

    contract(world)
    assert "238 rows released, 2 stay" in cli(*RELEASE, "--partition", WEEK, *BY).out
    assert rows("validated_table").height == 238
    left = [(kept.partition, kept.published) for kept in kept_rows(store, "deliveries")]
    assert left == [(WEEK, True), (NEXT, False)], "no row lies in two places"


def test_a_run_that_names_no_author_or_no_reason_is_told_so(world: World, cli: Cli) -> None:
    """Who launches a run through Dagster writes its tags himself."""
    cli("run", "deliveries", "--through", "raw_snapshot")
    job = build(read_settings(), only="deliveries").resolve_implicit_global_asset_job_def()
    key = dg.AssetKey(Address("deliveries", "validated_table", "orders").key.split("/"))
    for tags, missing in (
        ({RELEASED_BY: "Ada"}, RELEASE_REASON),
        ({RELEASE_REASON: "bigger"}, RELEASED_BY),
        ({RELEASED_BY: " ", RELEASE_REASON: "bigger"}, RELEASED_BY),
    ):
        with world.instance() as instance:
            done = job.get_subset(asset_selection={key}).execute_in_process(
                instance=instance, partition_key=WEEK, tags=tags, raise_on_error=False
            )
        (said,) = [str(e.step_failure_data.error) for e in done.all_events if e.is_step_failure]
        told = f"the run has no tag {missing}. Use ml-assets data quarantine release"
        assert told in said
        assert "KeyError" not in said


def test_nothing_to_release_and_a_table_that_there_is_not_are_told(world: World, cli: Cli) -> None:
    assert json.loads(cli("data", "quarantine", "show", "deliveries", "--json").out)["kept"] == []
    assert "No rows of deliveries/orders are in quarantine" in cli(*RELEASE, *BY, code=1).err
    assert "'lorries'" in cli("data", "quarantine", "show", "deliveries", "lorries", code=1).err


def test_a_column_that_came_or_went_is_named_by_a_check_and_nothing_is_published(
    world: World, cli: Cli
) -> None:
    rewrite(world, WEEK, lambda _, row: {"lorry" if k == "load" else k: v for k, v in row.items()})
    assert "added: «lorry»; removed: load" in cli(*RUN, code=1).err
    (found,) = [one for one in checks(world, "raw_snapshot")["schema"] if not one.passed]
    assert found.severity is dg.AssetCheckSeverity.ERROR
    named = {key: value.value for key, value in found.metadata.items()}
    assert (named["added"], named["removed"], named["retyped"]) == ("lorry", "load", "none")


def test_a_column_of_another_type_is_named_by_the_check(world: World, cli: Cli) -> None:
    rewrite(world, WEEK, lambda _, row: {**row, "load": f"{row['load']} kg"})
    cli(*RUN, code=1)
    (found,) = [one for one in checks(world, "raw_snapshot")["schema"] if not one.passed]
    assert found.metadata["retyped"].value == "load"


def test_one_bad_value_is_no_other_schema(world: World, cli: Cli) -> None:
    rewrite(world, WEEK, lambda n, row: {**row, "load": "heavy"} if n == 3 else row)
    assert "line 5, column 'load': «'heavy'» is not float64" in cli(*RUN, code=1).err
    assert all(one.passed for one in checks(world, "raw_snapshot").get("schema", []))


def test_a_drop_that_stays_is_refused_each_week_and_the_next_sound_week_is_published(
    world: World, cli: Cli
) -> None:
    """The measure is the newest week that was published, also after two that were refused."""
    deliveries.land(world.sources, 4)
    third, fourth = "2024-01-15", "2024-01-22"
    for week in (NEXT, third):
        file = world.sources / "orders" / f"{week}.csv"
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:141]))

    for _ in range(2):  # asked again, it is no other answer
        said = cli(*RUN, code=1).err
        for week in (NEXT, third):
            refused = f"{week}: deliveries/validated_table/orders [{week}]: 1 critical expectation"
            assert refused in said
        assert said.count(f"140 rows against 240, the partition before ({WEEK}): -41.7%") == 2
        assert record(fourth).rows == 240
    failed = [one for one in checks(world, "validated_table")["volume"] if not one.passed]
    for one in failed:
        assert f"the partition before ({WEEK}): -41.7%" in (one.description or "")
    assert {one.metadata["change"].value for one in failed} == {"-41.7%"}
    store = open_snapshots(read_settings().snapshots)
    table = Address("deliveries", "validated_table", "orders")
    assert list(published_partitions(store, store.resolve("main"), table)) == [WEEK, fourth]


def test_of_the_partitions_before_only_those_that_are_compared_with_are_read(
    world: World, tmp_path: Path
) -> None:
    class Counting(EmbeddedStore):
        def read_bytes(self, commit: str, path: str) -> bytes:
            read.append(path)
            return super().read_bytes(commit, path)

    read: list[str] = []
    folder = world.pipelines / "deliveries"
    store = Counting(tmp_path / "many")
    graph = pipeline_of(folder, store=store)
    raw = Address("deliveries", "raw_snapshot", "orders")
    table = Address("deliveries", "validated_table", "orders")
    weeks = [f"2024-{month:02}-{day:02}" for month, day in ((1, 1), (1, 8), (1, 15), (1, 22))]
    for number, week in enumerate(weeks):
        work = Work(table.at(week), "code", (), "run")
        with Draft(graph, work, store.resolve()) as draft:
            draft.table(pl.DataFrame({"order": range(number + 1)}), ["order"])
            draft.publish(attributes={})
    read.clear()
    found = records_before(graph.at(store.resolve()), raw.at(weeks[-1]))
    assert {key: record.rows for key, record in found.items()} == {weeks[-2]: 3}
    assert read == [table.at(weeks[-2]).record]


def test_what_is_odd_is_told_of_a_week_that_is_published_all_the_same(
    world: World, cli: Cli
) -> None:
    """Columns in another order and many bad rows in one week; in the next, rows of another one."""
    contract(world, max_value=9_999, mostly=0.5)
    columns = ("order", "load", "depot", "ordered_at")
    rewrite(world, WEEK, lambda n, row: {**row, "load": "99999"} if n % 3 == 0 else row)
    rewrite(world, WEEK, lambda _, row: {column: row[column] for column in columns})
    other = "2023-01-01T00:00:00Z"
    rewrite(world, NEXT, lambda n, row: {**row, "ordered_at": other} if n < 3 else row)
    said = cli(*RUN).out

    found = next(one for one in checks(world, "raw_snapshot")["schema"] if not one.passed)
    assert found.severity is dg.AssetCheckSeverity.WARN
    assert found.metadata["reordered"].value == "load, depot"
    assert rows("raw_snapshot").columns == ["order", "depot", "load", "ordered_at"]

    kept_back = "rows kept back came, too: else the next week would have too many"
    assert (record(WEEK).rows, record(NEXT).rows) == (159, 240), kept_back

    assert "[warn] rows_in_partition" in said
    assert "[2024-01-08] 3 of " in said
    assert rows("validated_table", NEXT).height == record(NEXT).rows
    assert "rows_in_partition" in record(NEXT).attributes["audit"]["warned"]
    assert "rows_in_partition" not in record(WEEK).attributes["audit"]["warned"]
    assert "  [warn] 3 of " in cli("status", RUN[1]).out, "until the next week is there"
