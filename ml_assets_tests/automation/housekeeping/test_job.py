"""The weekly house-keeping: on by default, and a run of its own that says what it freed."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from dagster._utils.schedules import schedule_execution_time_iterator
from mlflow import MlflowClient

from ml_assets.adapters.resources import StoresResource
from ml_assets.automation.housekeeping import job as housekeeping
from ml_assets.definitions import build
from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.records.tracking.outbox import Outbox, OutboxEntry
from ml_assets.settings import read_settings
from ml_assets.store.home import exclusive
from ml_assets_tests.actions.house import House

QUIET = {"telemetry": {"enabled": False}}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=QUIET) as instance:
        yield instance


@pytest.fixture
def house(tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> House:
    root = tmp_path / "house"
    monkeypatch.setenv("ML_ASSETS_HOME", str(root))
    return House(root, instance=instance, now=datetime(2025, 1, 1, tzinfo=UTC))


def keep_house(instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    return housekeeping.housekeeping.execute_in_process(
        instance=instance, resources={"stores": StoresResource()}
    )


def test_the_code_location_keeps_house_every_sunday_unless_it_is_stopped(tmp_path: Path) -> None:
    defs = build(read_settings({"ML_ASSETS_HOME": str(tmp_path)}))
    schedule = defs.resolve_schedule_def("housekeeping_weekly")
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING
    saturday = datetime(2026, 11, 21, tzinfo=UTC).timestamp()
    ticks = schedule_execution_time_iterator(
        saturday, schedule.cron_schedule, schedule.execution_timezone
    )
    assert next(ticks) == datetime(2026, 11, 22, 3, tzinfo=UTC)
    assert next(ticks) == datetime(2026, 11, 29, 3, tzinfo=UTC)
    with dg.build_schedule_context() as context:
        assert schedule.evaluate_tick(context).run_requests
    assert schedule.job_name == "housekeeping"


def test_its_run_deletes_and_says_what(house: House, instance: dg.DagsterInstance) -> None:
    old, kept = house.train(), house.train()
    run = keep_house(instance)
    [output] = [
        event.step_output_data
        for event in run.all_node_events
        if event.event_type == dg.DagsterEventType.STEP_OUTPUT
    ]
    freed = output.metadata["freed_bytes"].value
    assert isinstance(freed, int)
    assert freed > 8000
    assert "| models | 1 |" in str(output.metadata["kinds"].value)
    assert not house.objects.path("models", old.model).exists()
    assert house.objects.path("models", kept.model).exists()


@pytest.mark.daemon
def test_what_mlflow_could_not_take_is_delivered_before_its_session_may_go(
    house: House, instance: dg.DagsterInstance
) -> None:
    session = house.train().session
    house.train()  # nothing reaches the first one any more
    outbox = Outbox(house.root, house.objects)
    told = {"ml_assets.kept": "to be told"}
    outbox.note(
        OutboxEntry(pipeline="irises", session=session, status="FINISHED", tags=told, params={})
    )
    assert keep_house(instance).success
    assert not outbox.all()
    tracking = Tracking.of(read_settings())
    client = MlflowClient(tracking.uri)
    experiment = client.get_experiment_by_name("irises")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.data.tags["ml_assets.kept"]) == ("FINISHED", "to be told")


def test_where_another_keeps_house_its_run_has_nothing_to_do(
    house: House, instance: dg.DagsterInstance
) -> None:
    old = house.train()
    house.train()
    with exclusive(house.root / "housekeeping.lock", "gc", ""):
        assert keep_house(instance).success
    assert house.objects.path("models", old.model).exists()
