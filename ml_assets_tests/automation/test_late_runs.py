"""A run or a refresh that never came turns a check red, and it turns green again by itself."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.test_utils import freeze_time

from ml_assets.automation import run_requests, run_retries
from ml_assets.automation.late_runs import late_runs, late_runs_tick
from ml_assets.automation.run_retries import refresh_again
from ml_assets_tests.automation.conftest import Plant, World
from ml_assets_tests.worlds.ticks import switch, tick

RELEASE = dg.AssetKey(["deliveries", "released_model"])
REFRESH = "deliveries__refresh_schedule"


def now() -> datetime:
    """Not when the file was read: the runs of a test begin now."""
    return datetime.now(UTC)


def later() -> datetime:
    return now() + timedelta(minutes=30)


def test_a_run_that_stays_in_the_queue_is_noticed_and_forgotten_when_it_ran(plant: Plant):
    world = plant(2, "{landing: {}, start_within: 20 minutes}")
    assert late_runs(world.graph, world.instance, later()) == []
    run = queued(world)
    assert late_runs(world.graph, world.instance, now() + timedelta(minutes=10)) == []
    (said,) = late_runs(world.graph, world.instance, later())
    assert run.run_id[:8] in said
    assert "has not begun" in said

    red = late_runs_tick(world.graph, world.instance, None, later())
    assert shown(world, red) == AssetCheckExecutionRecordStatus.FAILED
    again = late_runs_tick(world.graph, world.instance, red.cursor, later())
    assert again.asset_events == []  # the event log holds changes, not ticks
    world.instance.report_run_failed(run)
    green = late_runs_tick(world.graph, world.instance, again.cursor, later())
    assert shown(world, green) == AssetCheckExecutionRecordStatus.SUCCEEDED


def test_it_is_said_again_after_a_release_which_would_outdate_it(plant: Plant):
    world = plant(2, "{landing: {}}")
    first = late_runs_tick(world.graph, world.instance, None, now())
    release = dg.AssetMaterialization(RELEASE)
    world.instance.report_runless_asset_event(release)
    second = late_runs_tick(world.graph, world.instance, first.cursor, now())
    assert shown(world, second) == AssetCheckExecutionRecordStatus.SUCCEEDED
    third = late_runs_tick(world.graph, world.instance, second.cursor, now())
    assert third.asset_events == []


def test_a_run_that_waits_for_its_turn_is_not_late(plant: Plant):
    world = plant(2, "{landing: {}}")
    queued(world)
    working = run_of(world, dg.DagsterRunStatus.STARTED)
    assert late_runs(world.graph, world.instance, later()) == []
    world.instance.report_run_failed(working)
    assert late_runs(world.graph, world.instance, later()) != []


def test_a_refresh_that_was_due_while_the_daemon_was_down_is_noticed(plant: Plant):
    world = plant(2, "{refresh: {every: hour}}")
    since = now() - timedelta(hours=5)
    state = switch(world.instance, REFRESH, "0 * * * *", since=since)
    (said,) = late_runs(world.graph, world.instance, now())
    assert "refresh of deliveries was due at" in said
    assert "daemon" in said
    tick(world.instance, state)
    assert late_runs(world.graph, world.instance, now()) == []


def test_a_schedule_that_was_edited_has_missed_nothing_that_its_daemon_looked_at(plant: Plant):
    world = plant(2, "{refresh: {every: hour}}")
    at = now().replace(minute=50)  # it was due at the full hour
    begun, looked = at - timedelta(days=60), at - timedelta(minutes=20)
    state = switch(world.instance, REFRESH, "0 6 * * 1", since=begun, looked=looked)
    tick(world.instance, state, at - timedelta(days=2))
    assert late_runs(world.graph, world.instance, at) == []
    (said,) = late_runs(world.graph, world.instance, at + timedelta(hours=3))
    assert "was due at" in said


def test_a_schedule_that_was_just_switched_on_has_missed_nothing(plant: Plant):
    world = plant(2, "{refresh: {every: hour}}")
    switch(world.instance, REFRESH, "0 * * * *")
    assert late_runs(world.graph, world.instance, now()) == []


@pytest.mark.daemon
def test_a_refresh_whose_process_died_is_asked_for_again_until_the_model_is_made(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
):
    world = plant(12, "{refresh: {every: week}, landing: {}}")
    world.settle()
    assert not world.tick("runs_begin").run_requests, "no schedule asked for a run yet"

    first = scheduled(world)
    world.instance.report_run_failed(first)
    monkeypatch.setattr(run_requests, "FIRST_WAIT", timedelta())
    assert not world.tick("runs_begin").run_requests, "the schedule is off"
    switch(world.instance, REFRESH, "0 0 * * 1")
    monkeypatch.setattr(run_requests, "FIRST_WAIT", timedelta(minutes=1))
    assert not world.tick("runs_begin").run_requests, "a minute has to go by"
    monkeypatch.setattr(run_requests, "FIRST_WAIT", timedelta())
    (again,) = world.tick("runs_begin").run_requests
    assert again.run_key == first.run_id
    assert again.tags["trigger"] == "schedule"
    assert f"run {first.run_id[:8]} failed for a temporary cause" in again.tags["why"]
    assert again.run_config["ops"]["deliveries__training_set"]["config"]["as_of"]

    second = scheduled(world, **again.tags)
    world.instance.report_run_failed(second)
    (third,) = world.tick("runs_begin").run_requests
    assert third.run_key == second.run_id
    assert third.tags["ml_assets/attempt"] == "3"
    last = scheduled(world, **{**third.tags, "ml_assets/attempt": "8"})
    world.instance.report_run_failed(last)
    assert not world.tick("runs_begin").run_requests, "eight times are enough"
    world.instance.report_run_failed(scheduled(world, **{"dagster/will_retry": "true"}))
    assert not world.tick("runs_begin").run_requests, "Dagster itself asks for it again"


@pytest.mark.parametrize(("ended", "again"), [(timedelta(), True), (timedelta(hours=25), False)])
def test_a_refresh_that_was_hindered_after_days_of_training_is_asked_for_again(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, ended: timedelta, again: bool
):
    world = plant(2, "{refresh: {every: week}, landing: {}}")
    switch(world.instance, REFRESH, "0 0 * * 1")
    monkeypatch.setattr(run_requests, "FIRST_WAIT", timedelta())
    due = dg.RunRequest(tags={"why": "model: an input changed"})
    monkeypatch.setattr(run_retries, "refresh_tick", lambda _: due)
    with freeze_time(now() - timedelta(days=3)):
        run = scheduled(world)
    with freeze_time(now() - ended):
        world.instance.report_run_failed(run)
    found = refresh_again(world.graph, world.instance, lambda: world.graph)
    assert bool(found) is again, "one that ended a day ago is nobody's wish any more"


def scheduled(world: World, **tags: str) -> dg.DagsterRun:
    """The refresh as its schedule asks for it, at work."""
    job = world.defs.resolve_job_def("deliveries__refresh")
    given = {**job.run_tags, "trigger": "schedule", **tags}
    started = dg.DagsterRunStatus.STARTED
    return world.instance.create_run_for_job(job, status=started, tags=given)


def test_the_check_is_on_the_release_and_can_be_run_by_hand(plant: Plant):
    world = plant(2, "{landing: {}}")
    run = queued(world)
    key = dg.AssetCheckKey(RELEASE, "runs_begin")
    job = world.defs.resolve_implicit_global_asset_job_def()
    subset = job.get_subset(asset_check_selection={key})
    assert subset.execute_in_process(instance=world.instance).success
    world.instance.report_run_failed(run)


def shown(world: World, result: dg.SensorResult) -> AssetCheckExecutionRecordStatus:
    """What the UI shows of the check, once the daemon has stored what a tick reports."""
    (event,) = result.asset_events
    assert isinstance(event, dg.AssetCheckEvaluation)
    assert event.severity == dg.AssetCheckSeverity.ERROR
    world.instance.report_runless_asset_event(event)
    key = dg.AssetCheckKey(RELEASE, "runs_begin")
    return world.instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[
        key
    ].status


def queued(world: World) -> dg.DagsterRun:
    """A run that was asked for and that nobody has launched."""
    return run_of(world, dg.DagsterRunStatus.NOT_STARTED)


def run_of(world: World, status: dg.DagsterRunStatus) -> dg.DagsterRun:
    job = world.defs.resolve_job_def("deliveries__sources")
    return world.instance.create_run_for_job(job, status=status, tags=dict(job.run_tags))
