"""The refresh schedule: the model made again on the newest published window, when it is due."""

import dagster as dg

from ml_assets.automation.jobs import AssetJob
from ml_assets.automation.planner.candidate_runs import model_candidate
from ml_assets.automation.planner.due import records_by_address
from ml_assets.automation.run_requests import run_request
from ml_assets.automation.tick_failures import why_not
from ml_assets.errors import MlAssetsError
from ml_assets.graph.pipeline_graph import PipelineGraph
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.spec.automation import Timed, cron_expression
from ml_assets.store.snapshots import SnapshotStore


def schedules(graph: PipelineGraph, refresh: AssetJob) -> list[dg.ScheduleDefinition]:
    """The schedule that the spec declares."""
    declared = graph.spec.automation.refresh
    if declared is None:
        return []

    @dg.schedule(
        name=f"{graph.name}__refresh_schedule",
        description="Makes the model again on the newest published window; skips when nothing"
        " has changed since.",
        job=refresh,
        cron_schedule=cron_of(declared),
        execution_timezone=declared.timezone or graph.spec.partitions.timezone,
        default_status=dg.DefaultScheduleStatus(declared.status.upper()),
    )
    def evaluate(
        context: dg.ScheduleEvaluationContext, snapshots: SnapshotsResource
    ) -> dg.RunRequest | dg.SkipReason:
        return refresh_tick(graph, snapshots.store())

    return [evaluate]


def cron_of(declared: Timed) -> str:
    """When it is due, in cron's five fields."""
    return cron_expression(declared.every, declared.at, declared.cron)


def refresh_tick(graph: PipelineGraph, store: SnapshotStore) -> dg.RunRequest | dg.SkipReason:
    """The run of one tick, with its window resolved here; or one sentence why there is none.

    A run that is at work already is no reason to skip: this one waits in the queue, and finds
    made what the other has made.
    """
    try:
        records = records_by_address(store, graph.name)
        found = model_candidate(graph, store, records, as_of=None, data_only=False)
    except MlAssetsError as error:
        return dg.SkipReason(why_not(error))
    if isinstance(found, str):
        return dg.SkipReason(f"{found[0].upper()}{found[1:]}.")
    return run_request(graph, "schedule", [found], found.selection)
