"""The resume drill of a pipeline: a check on its checkpoints, a job that runs it, a schedule."""

import random
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.adapters.resources import StoresResource
from ml_assets.adapters.step import reported
from ml_assets.automation.jobs import AssetJob, run_tags
from ml_assets.automation.schedules import timed_schedules
from ml_assets.errors import MlAssetsError, SpecError
from ml_assets.store.pipeline_context import Pipeline

if TYPE_CHECKING:
    from ml_assets.launch.drill import DrillOutcome

CHECK = "resume_drill"


def drill_check_key(pipeline: Pipeline) -> dg.AssetCheckKey:
    """Return how Dagster names the check."""
    return dg.AssetCheckKey(asset_key(pipeline, "checkpoints"), CHECK)


def require_drill(pipeline: Pipeline) -> dg.AssetCheckKey:
    """The check of a pipeline that declares it.

    Raises:
        SpecError: it does not.
    """
    if pipeline.spec.automation.resume_drill is None:
        raise SpecError(
            f"{pipeline.name} declares no drill. Add to its spec:"
            " automation: {resume_drill: {every: week, at: sunday 05:00}}"
        )
    return drill_check_key(pipeline)


def drilled(instance: dg.DagsterInstance, run: str) -> bool:
    """Return whether the drill of a run passed."""
    logs = instance.all_logs(run, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    events = [entry.get_dagster_event() for entry in logs]
    return all(event.asset_check_evaluation_data.passed for event in events) and bool(events)


def drill_check(declared: Pipeline) -> dg.AssetChecksDefinition:
    """The check. It drills where it was asked for alone: not with every training."""

    @dg.multi_asset_check(
        name=f"{declared.name}__drill",  # not the name of its job: a repository has each name once
        specs=[
            dg.AssetCheckSpec(
                CHECK,
                asset=asset_key(declared, "checkpoints"),
                description="Trains the newest training set for a few steps, twice; one process of"
                " the second training is killed, or one pod. Both must end in the same weights, bit"
                " for bit.",
            )
        ],
        can_subset=True,  # so that it may say nothing
    )
    @reported
    def check(
        context: dg.AssetCheckExecutionContext, stores: StoresResource
    ) -> Iterator[dg.AssetCheckResult]:
        pipeline = stores.open(declared)
        # a run does not say in every case what it was asked for; its job does
        if context.op_execution_context.job_def.asset_layer.selected_asset_keys:
            context.log.info(f"not drilled here: {drill_job_name(pipeline)} does it")
            return
        outcome = drill(pipeline)
        yield dg.AssetCheckResult(
            asset_key=asset_key(pipeline, "checkpoints"),
            check_name=CHECK,
            passed=outcome.passed,
            severity=dg.AssetCheckSeverity.ERROR,
            description=outcome.reason,
            metadata=_metadata(outcome),
        )

    return check


def drill(pipeline: Pipeline) -> "DrillOutcome":
    """Drill the newest training set; what is trained for it is deleted again.

    Raises:
        StorageError: there is no training set yet.
        TrainingFailed: its training fails without anybody's doing.
    """
    from ml_assets.assets.trained_model.training_job import train_job
    from ml_assets.graph.inputs import require_record
    from ml_assets.launch.drill import resume_drill
    from ml_assets.launch.ephemeral_session import ephemeral_launcher

    data = require_record(pipeline.now(), pipeline.address("training_set"))
    job = train_job(pipeline, data, None, {})
    return resume_drill(
        job, partial(ephemeral_launcher, pipeline.settings, "drill"), random.Random()
    )


def drill_job_name(pipeline: Pipeline) -> str:
    return f"{pipeline.name}__{CHECK}"


def drill_job(pipeline: Pipeline) -> AssetJob:
    """The job that runs the check and nothing else."""
    return dg.define_asset_job(
        drill_job_name(pipeline),
        selection=dg.AssetSelection.checks(drill_check_key(pipeline)),
        description="Kills a process of a short training, and compares its weights with those of"
        " one that was not killed.",
        tags=run_tags(pipeline, "by hand", {}),
    )


def drill_schedules(declared: Pipeline, job: AssetJob) -> list[dg.ScheduleDefinition]:
    """The schedule that the spec declares."""
    timed = declared.spec.automation.resume_drill
    described = "Checks at set times that a killed training resumes to the same weights."
    return timed_schedules(declared, timed, f"{CHECK}_schedule", described, job, _drill_tick)


def _drill_tick(pipeline: Pipeline) -> dg.RunRequest | dg.SkipReason:
    """The drill of one tick, on the training set that is published."""
    from ml_assets.graph.inputs import require_record

    try:
        require_record(pipeline.now(), pipeline.address("training_set"))
    except MlAssetsError as error:
        return dg.SkipReason(" ".join(str(error).split()))
    return dg.RunRequest(tags=run_tags(pipeline, "schedule", {"why": "the resume drill is due"}))


def _metadata(outcome: "DrillOutcome") -> dict[str, Any]:
    found = {name: value for name, value in asdict(outcome).items() if value is not None}
    found["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    return {name: found[name] for name in found if name not in ("passed", "reason")}
