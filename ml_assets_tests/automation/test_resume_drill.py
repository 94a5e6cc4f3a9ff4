"""The resume drill through Dagster: on its schedule, as a check with a date, touching nothing."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.automation.resume_drill import drilled, require_drill
from ml_assets.errors import SpecError
from ml_assets.settings import read_settings
from ml_assets_tests.automation.conftest import QUIET, Plant, World, asked_for

CHECK = dg.AssetCheckKey(dg.AssetKey(["deliveries", "checkpoints"]), "resume_drill")


def test_a_pipeline_that_declares_none_says_what_to_add(plant: Plant):
    with pytest.raises(SpecError, match="declares no drill"):
        require_drill(plant(2, "{}").graph)


@pytest.mark.daemon
def test_a_drill_is_scheduled_runs_and_shows_its_date(plant: Plant):
    world = plant(12, "{resume_drill: {every: week, at: 'sunday 05:00'}, landing: {}}")
    schedule = world.defs.resolve_schedule_def("deliveries__resume_drill_schedule")
    assert (schedule.cron_schedule, schedule.job_name) == ("0 5 * * 0", "deliveries__resume_drill")
    assert "training_set was never materialized" in str(tick(world))
    world.settle()
    assert made(world, ["training_set"]).success

    request = tick(world)
    assert isinstance(request, dg.RunRequest)
    assert world.execute(request.with_replaced_attrs(job_name=schedule.job_name))
    (run,) = world.runs({"trigger": "schedule"})
    (entry,) = world.instance.all_logs(
        run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION
    )
    check = entry.get_dagster_event().asset_check_evaluation_data
    assert check.asset_check_key == CHECK
    assert check.passed, check.description
    assert not check.blocking
    told = {name: value.value for name, value in check.metadata.items()}
    assert told["undisturbed"] == told["resumed"]
    assert told["rank"] in (0, 1)
    assert datetime.fromisoformat(str(told["date"])).date() == datetime.now(UTC).date()
    assert drilled(world.instance, run.run_id)
    settings = read_settings()
    assert list(settings.scratch.iterdir()) == []
    assert not list((settings.home / "objects").glob("sessions/*-train-*")), "none of its own"

    trained = made(world, ["checkpoints", "trained_model"])  # its checks come along
    assert trained.success
    assert trained.get_asset_check_evaluations() == [], "a training is no drill"


def made(world: World, stages: list[str]) -> dg.ExecuteInProcessResult:
    job = world.defs.resolve_implicit_global_asset_job_def()
    keys = {asset_key(world.graph, stage) for stage in stages}
    return job.get_subset(asset_selection=keys).execute_in_process(
        instance=world.instance, run_config=QUIET
    )


def tick(world: World) -> dg.RunRequest | str:
    """What the schedule asks for, or why it skips."""
    definition = world.defs.resolve_schedule_def("deliveries__resume_drill_schedule")
    with dg.build_schedule_context(
        instance=world.instance,
        scheduled_execution_time=datetime(2024, 4, 7, 5, tzinfo=UTC),
        resources=asked_for(definition),
    ) as context:
        found = definition.evaluate_tick(context)
    return found.run_requests[0] if found.run_requests else str(found.skip_message)
