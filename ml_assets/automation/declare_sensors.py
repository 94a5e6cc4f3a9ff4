"""Declares the sensors of a pipeline; the code of their ticks is imported when they run.

One watches what arrives in the sources, one watches for code that differs from the published, one
for drift.
"""

from datetime import UTC, datetime
from typing import Literal

import dagster as dg

from ml_assets.adapters.resources import StoresResource
from ml_assets.automation.jobs import PipelineJobs
from ml_assets.spec.automation import Status
from ml_assets.store.pipeline_context import Pipeline

SECONDS_BETWEEN_TICKS = 30


def sensors(pipeline: Pipeline, jobs: PipelineJobs) -> list[dg.SensorDefinition]:
    """The sensors that the spec declares."""
    declared = pipeline.spec.automation
    found: list[dg.SensorDefinition] = []
    if declared.landing:
        then = ", then makes the model again" if declared.landing.retrain else ""
        about = f"Reads partitions that have landed in all sources, or changed there{then}."
        found.append(_sensor(pipeline, jobs, "landing", about, declared.landing.status))
    if declared.on_code_change:
        about = "Makes again what was made by other code or another spec than the present ones."
        found.append(_sensor(pipeline, jobs, "code_change", about, "running"))
    return found


def drift_sensors(declared: Pipeline, jobs: PipelineJobs) -> list[dg.SensorDefinition]:
    """The sensor of a pipeline whose spec lets drift train."""
    retrain = declared.spec.drift.retrain if declared.spec.drift else None
    if retrain is None:
        return []

    @dg.sensor(
        name=f"{declared.name}__drift",
        description="Compares new periods with the release's training data, and trains again if"
        " they drifted.",
        jobs=list(jobs.all),
        minimum_interval_seconds=SECONDS_BETWEEN_TICKS,
        default_status=dg.DefaultSensorStatus(retrain.status.upper()),
        tags={"pipeline": declared.name},
    )
    def evaluate(context: dg.SensorEvaluationContext, stores: StoresResource) -> dg.SensorResult:
        from ml_assets.automation.drift_sensor import drift_tick

        now = datetime.now(UTC)
        pipeline = stores.open(declared)
        cursor = context.cursor
        result = drift_tick(pipeline, jobs, retrain, context.instance, cursor, now)
        for request in result.run_requests or ():
            context.log.info(f"asked for {request.tags['why']}")
        return result

    return [evaluate]


def _sensor(
    declared: Pipeline,
    jobs: PipelineJobs,
    name: Literal["landing", "code_change"],
    about: str,
    status: Status,
) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"{declared.name}__{name}",
        description=about,
        jobs=list(jobs.all),
        minimum_interval_seconds=SECONDS_BETWEEN_TICKS,
        default_status=dg.DefaultSensorStatus(status.upper()),
        tags={"pipeline": declared.name},
    )
    def evaluate(
        context: dg.SensorEvaluationContext,
        stores: StoresResource,
    ) -> dg.SensorResult:
        from ml_assets.assets.raw_snapshot.sources import Sources
        from ml_assets.automation.data_sensors import LOOKS, tick

        pipeline = stores.open(declared)
        found = Sources.of(pipeline)
        result = tick(pipeline, jobs, LOOKS[name], context.instance, found, context.cursor)
        for request in result.run_requests or ():
            context.log.info(f"asked for {request.tags['why']}")
        return result

    return evaluate
