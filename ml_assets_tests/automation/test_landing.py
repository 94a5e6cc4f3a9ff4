"""The landing sensor: what lands is taken in once, what failed waits, and the model follows."""

import re
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from ml_assets.actions.reliability import reliability
from ml_assets.assets.raw_snapshot.sources import Sources
from ml_assets.automation import run_requests
from ml_assets.automation.data_sensors import Watch, landing
from ml_assets.automation.planner import candidate_runs
from ml_assets.automation.tick_failures import COULD_NOT
from ml_assets.errors import SpecError, StorageError
from ml_assets.records.data_failures import failed_partitions
from ml_assets.settings import read_settings
from ml_assets_tests.automation.conftest import LANDING, WEEKS, Plant, World
from ml_assets_tests.worlds import deliveries, irises


def test_what_has_landed_is_taken_in_step_by_step_and_then_there_is_nothing_to_do(plant: Plant):
    world = plant(3, LANDING)
    whole, weeks = world.asks_for()
    assert whole.asset_selection == [
        dg.AssetKey(["deliveries", "raw_snapshot", "raw_depots"]),
        dg.AssetKey(["deliveries", "validated_table", "depots"]),
    ]
    assert weeks.tags["dagster/asset_partition_range_start"] == "2024-01-01"
    assert weeks.tags["dagster/asset_partition_range_end"] == "2024-01-15"
    assert weeks.tags["pipeline"] == "deliveries"
    assert weeks.tags["trigger"] == "landing"
    assert weeks.tags["dagster/max_retries"] == "0"  # the sensor asks again, and nobody beside it
    assert weeks.tags["why"] == ("sources [2024-01-01 .. 2024-01-15: 3 partitions]: never made")
    assert world.execute(whole)
    assert world.execute(weeks)
    assert world.settle() == ["table_closed_orders", "features"]
    assert world.published("feature_set") == WEEKS[1:3]
    said = world.says()
    assert said == (
        "3 partitions (2024-01-01 to 2024-01-15) landed in the sources of deliveries;"
        " everything that landed is published."
    )


def test_a_file_that_is_too_new_to_be_told_whole_asks_for_no_model_without_features(plant: Plant):
    given = plant(1, LANDING)
    irises.plant(given.root / "pipelines", given.sources)
    spec = given.root / "pipelines" / "irises" / "defs.yaml"
    spec.write_text(irises.SPEC + "  automation: {landing: {retrain: true}}\n")
    world = World(given.root, given.instance, name="irises")
    first = world.evaluate()
    assert not first.run_requests
    assert "the model waits until irises/feature_set is made" in first.skip_message
    (asked,) = world.asks_for()
    assert asked.tags["why"] == "sources: never made"


def test_a_calendar_that_ends_too_early_for_its_split_is_trouble_and_no_wait(plant: Plant):
    world = plant(2, "{landing: {retrain: true}}")
    spec = world.folder / "defs.yaml"
    spec.write_text(spec.read_text().replace("end: 2024-05-06", "end: 2024-03-18"))
    world.settle()
    assert world.published("feature_set") == WEEKS[1:2], "the data is made"
    assert world.says().startswith(f"{COULD_NOT}deliveries can never be trained: partitions.end")


def test_a_new_partition_is_asked_for_once_also_when_the_cursor_is_lost(plant: Plant):
    world = plant(2, LANDING)
    world.settle()
    deliveries.land(world.sources, 3)
    (first,) = world.asks_for()
    assert first.tags["why"] == "sources [2024-01-15]: never made"
    world.cursors.clear()  # a daemon that died before it stored the tick evaluates it again
    (again,) = world.asks_for()
    assert again.run_key == first.run_key  # and Dagster takes one run key once
    assert world.execute(first)
    assert world.settle() == ["table_closed_orders", "features"]


def test_nothing_is_asked_for_while_a_run_is_at_work_whoever_started_it(plant: Plant):
    world = plant(2, LANDING)
    key = dg.AssetKey(["deliveries", "feature_set"])
    job = world.defs.resolve_implicit_global_asset_job_def()
    run = world.instance.create_run_for_job(
        job, asset_selection=frozenset({key}), status=dg.DagsterRunStatus.STARTED
    )
    assert world.says() == f"run {run.run_id[:8]} (by hand, started) is working on deliveries."
    world.instance.report_run_failed(run)
    assert world.asks_for()


def test_a_partition_that_failed_waits_until_its_source_changes(plant: Plant):
    world = plant(3, LANDING)
    arrivals = world.sources / "arrivals" / "2024-01-15.jsonl"
    good = arrivals.read_text()
    deliveries.deliver(arrivals, good.replace("true", "null").replace("false", "null"))
    assert world.settle() == ["sources", "sources", "table_closed_orders", "features"]
    assert world.published("validated_table", "arrivals") == WEEKS[:2]
    assert world.published("feature_set") == WEEKS[1:2]  # its neighbours are not held up
    failed = world.runs({"trigger": "landing"})
    run = next(r for r in failed if r.status == dg.DagsterRunStatus.FAILURE)
    for _ in range(3):
        said = world.says()
        assert f"sources [2024-01-15] failed in run {run.run_id[:8]} and waits" in said
    deliveries.deliver(arrivals, good)
    (request,) = world.asks_for()
    assert request.tags["why"].startswith("sources [2024-01-15]")
    assert world.execute(request)
    assert world.settle() == ["table_closed_orders", "features"]
    assert world.published("feature_set") == WEEKS[1:3]


def test_a_run_whose_process_died_is_asked_for_again_and_after_three_times_later(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
):
    world = plant(2, LANDING)
    world.settle()
    deliveries.land(world.sources, 3)
    keys: list[str | None] = []

    def dies() -> None:
        (request,) = world.asks_for()
        keys.append(request.run_key)
        run = world.instance.create_run_for_job(
            world.defs.resolve_job_def("deliveries__sources"),
            tags={**request.tags, "dagster/run_key": str(request.run_key)},
        )
        world.instance.report_run_failed(run, "the machine went down")

    for _ in range(3):
        dies()
    assert "sources [2024-01-15] died in run" in (said := world.says())
    assert "(attempt 3) and is tried again in 1 minute; 'ml-assets run deliveries'" in said
    with monkeypatch.context() as later:
        later.setattr(run_requests, "FIRST_WAIT", timedelta(seconds=-1))
        dies()
    assert "(attempt 4) and is tried again in 2 minutes" in world.says()
    assert len(set(keys)) == 4


def test_code_that_changed_is_not_the_landing_sensors_affair(plant: Plant):
    world = plant(2, LANDING)
    world.settle()
    features = world.folder / "features.py"
    features.write_text(features.read_text().replace('how="left"', 'how="inner"'))
    assert "everything that landed is published" in world.says()


def test_the_model_follows_once_its_data_is_published_and_a_refusal_stands(plant: Plant):
    world = plant(12, "{landing: {retrain: true}}")
    spec = world.folder / "defs.yaml"
    quick = (
        spec.read_text().replace("epochs: 6", "epochs: 1").replace("processes: 2", "processes: 1")
    )
    spec.write_text(quick.replace("at_least: 0.55", "at_least: 0.01"))
    assert world.settle() == ["sources", "sources", "table_closed_orders", "features", "refresh"]
    assert world.as_of() == "2024-03-18"
    assert "the model of 2024-03-18 is made from what is published" in world.says()

    spec.write_text(spec.read_text().replace("at_least: 0.01", "at_least: 0.98"))
    assert "the model of 2024-03-18 is made from" in world.says()  # a policy is not data
    deliveries.land(world.sources, 13)
    for job in ("sources", "table_closed_orders", "features"):
        (data,) = world.asks_for()
        assert data.job_name == f"deliveries__{job}"
        assert world.execute(data)
    (model,) = world.asks_for()
    assert model.job_name == "deliveries__refresh"
    assert model.tags["why"] == "model [2024-03-25]: an input changed"
    assert model.run_config["ops"]["deliveries__training_set"]["config"] == {"as_of": "2024-03-25"}
    assert not world.execute(model)  # the gate refuses
    assert world.as_of() == "2024-03-25"
    assert "the model of 2024-03-25 remains refused: " in world.says()
    world.cursors.clear()
    assert "remains refused" in world.says()  # it is in the ledger, not in a memory

    now = datetime.now(UTC)
    ran = reliability(world.graph.spec, world.instance, now - timedelta(days=1), now)
    assert ran.work[-1].end == "refused"
    assert ran.share == 1.0


def test_a_table_of_many_partitions_is_taken_in_turn_by_turn_and_the_model_waits_for_all(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ml_assets.assets.raw_snapshot.readers.arrived_files.SECONDS", 0.0)
    world = plant(5, "{landing: {retrain: true}}")
    deliveries.move_orders_to_sql(world.folder, world.sources)
    spec = world.folder / "defs.yaml"
    spec.write_text(re.sub("end: [0-9-]+", "end: 2024-02-05", spec.read_text()))
    settings = read_settings()
    sources = Sources(settings, settings.seen)
    found: list[Watch] = []
    for number in (3, 4, 5):
        found.append(landing(world.graph, sources, {}))
        raw = [item.node.address for item in found[-1].data.due]
        weeks = [a for a in raw if (a.stage, a.source) == ("raw_snapshot", "orders")]
        assert len(weeks) == number
    assert "; 2 partitions of orders not checked yet" in found[0].seen
    assert "; 1 partition of orders not checked yet" in found[1].seen
    assert "not looked at" not in found[2].seen
    for watch in found[:2]:
        assert watch.model() == "the model waits until each partition has been checked"
    with pytest.raises(SpecError, match="can never be trained"):  # it is asked about
        found[2].model()


def test_a_drift_that_cannot_be_looked_at_keeps_back_no_data(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
):
    def refuses(_: object) -> str:
        raise StorageError("the baseline is not the one that was certified")

    monkeypatch.setattr(candidate_runs, "drift_candidate", refuses)
    world = plant(3, LANDING)
    assert world.asks_for()


def test_a_failure_of_changed_code_is_known_until_the_code_is_back(plant: Plant):
    world = plant(3, "{landing: {}, on_code_change: true}")
    world.settle()
    for file, column, asset in (
        ("tables.py", '"arrived_at"', "deliveries/derived_table/closed_orders"),
        ("features.py", '"recent_late"', "deliveries/feature_set"),
    ):
        good = (world.folder / file).read_text()
        assert column in good
        (world.folder / file).write_text(good.replace(column, '"another"'))
        (broken,) = world.asks_for("code_change")
        assert not world.execute(broken)
        for _ in range(2):
            assert "everything that landed is published" in world.says()
            assert failed_partitions(world.graph.now()).keys() == {asset}
        (world.folder / file).write_text(good)
        assert "everything that landed is published" in world.says()
        assert not failed_partitions(world.graph.now())
