"""What is due by the clock is read from the store; when, with its time zone, from the spec."""

from datetime import UTC, datetime

import dagster as dg

from ml_assets.spec.base import canonical_json
from ml_assets.spec.records import StageRecord
from ml_assets.store.layout import Address
from ml_assets_tests.automation.conftest import Plant, World, asked_for

SEARCH = """\
search:
  method: grid
  trials: 2
  schedule: {every: day}
  parameters:
    model.width: {kind: choice, values: [8, 16]}
"""


def test_the_schedule_is_what_the_spec_says(plant: Plant):
    world = plant(2, "{refresh: {every: week, at: 'monday 06:30', timezone: Europe/Paris}}")
    schedule = world.defs.resolve_schedule_def("deliveries__refresh_schedule")
    assert schedule.cron_schedule == "30 6 * * 1"
    assert schedule.execution_timezone == "Europe/Paris"
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING
    assert schedule.job_name == "deliveries__refresh"


def test_a_pipeline_without_automation_has_jobs_and_nothing_that_runs_by_itself(plant: Plant):
    repository = plant(2, "{}").defs.get_repository_def()
    mine = [name for name in repository.job_names if name.startswith("deliveries__")]
    assert {name.removeprefix("deliveries__") for name in mine} == {
        "sources",
        "table_closed_orders",
        "features",
        "refresh",
        "rollback",
    }
    assert not [s for s in repository.sensor_defs if s.name.startswith("deliveries")]
    assert not [s for s in repository.schedule_defs if s.name.startswith("deliveries")]


def test_a_tick_without_enough_data_says_what_is_missing(plant: Plant):
    world = plant(2, "{refresh: {every: day}, landing: {}}")
    assert "deliveries/feature_set has no published partition" in str(tick(world))
    world.settle()
    found = tick(world)
    assert isinstance(found, str)
    assert "2024-01-08" in found


def test_a_tick_hands_over_the_window_and_the_next_one_has_nothing_to_do(plant: Plant):
    world = plant(12, "{refresh: {every: day}, landing: {}}")
    spec = world.folder / "defs.yaml"
    quick = spec.read_text().replace("epochs: 6", "epochs: 1").replace("0.55", "0.01")
    spec.write_text(quick.replace("processes: 2", "processes: 1"))
    world.settle()
    request = tick(world)
    assert isinstance(request, dg.RunRequest)
    assert request.run_config["ops"]["deliveries__training_set"]["config"] == {
        "as_of": "2024-03-18"
    }
    assert request.tags["pipeline"] == "deliveries"
    assert request.tags["trigger"] == "schedule"
    assert request.tags["why"] == "model [2024-03-18]: never made"
    job = world.defs.resolve_job_def("deliveries__refresh")
    started = dg.DagsterRunStatus.STARTED
    run = world.instance.create_run_for_job(job, tags=dict(request.tags), status=started)
    waits = f"run {run.run_id[:8]} (schedule, started) already makes the same for deliveries."
    assert tick(world) == waits  # else it would publish and judge all of it a second time
    world.instance.report_run_failed(run)
    assert tick(world) == request
    assert world.execute(request.with_replaced_attrs(job_name="deliveries__refresh"))
    assert tick(world) == "The model of 2024-03-18 is made from what is published."

    spec.write_text(spec.read_text().replace("at_least: 0.01", "at_least: 0.98"))
    policy = tick(world)
    assert isinstance(policy, dg.RunRequest)
    assert "deliveries__training_set" not in policy.run_config.get("ops", {})
    assert not world.execute(policy.with_replaced_attrs(job_name="deliveries__refresh"))
    found = tick(world)
    assert isinstance(found, str)
    assert "remains refused" in found


def test_a_study_that_is_at_work_is_asked_for_by_no_other_tick(plant: Plant):
    world = plant(2, "{landing: {}}")
    (world.folder / "search.yaml").write_text(SEARCH)
    assert "no training set" in str(tick(world, "search"))
    publish_training_set(world, "a" * 64)
    asked = tick(world, "search")
    assert isinstance(asked, dg.RunRequest)
    assert asked.tags["why"] == "never made"
    job = world.defs.resolve_job_def("deliveries__search")
    run = world.instance.create_run_for_job(
        job, tags=dict(asked.tags), status=dg.DagsterRunStatus.STARTED
    )
    assert "already makes the same for deliveries." in str(tick(world, "search"))
    publish_training_set(world, "b" * 64)
    other = tick(world, "search")
    assert isinstance(other, dg.RunRequest), "it is of other rows"
    world.instance.report_run_failed(run)


def publish_training_set(world: World, version: str) -> None:
    """As far as a study looks at it before it begins: its record."""
    address, pipeline = Address("deliveries", "training_set"), world.graph
    record = StageRecord(
        key=address.key,
        partition=None,
        run_key=version,
        code_version="1",
        data_version=version,
        rows=1,
        inputs=(),
        run="run",
        time=datetime.now(UTC),
    )
    with pipeline.store.open(pipeline.store.resolve(), version) as workspace:
        workspace.put_bytes(address.record, canonical_json(record))
        workspace.commit(str(address), {})
        workspace.publish()


def tick(world: World, name: str = "refresh") -> dg.RunRequest | str:
    """What a schedule asks for, or why it skips."""
    definition = world.defs.resolve_schedule_def(f"deliveries__{name}_schedule")
    with dg.build_schedule_context(
        instance=world.instance,
        scheduled_execution_time=datetime(2024, 4, 1, 6, tzinfo=UTC),
        resources=asked_for(definition),
    ) as context:
        found = definition.evaluate_tick(context)
    return found.run_requests[0] if found.run_requests else str(found.skip_message)
