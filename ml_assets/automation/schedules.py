"""The refresh schedule: the model made again on the newest published window, when it is due."""

import dagster as dg

from ml_assets.automation.jobs import AssetJob, run_tags
from ml_assets.automation.planner.decided import standing_refusal
from ml_assets.automation.planner.selection import model_run
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
        found = model_run(graph, store)
        selection = found.selection
        window = found.as_of or "all rows"
        if selection is None:
            return dg.SkipReason(f"The model of {window} is made from what is published.")
        released = graph.key("released_model")
        refusal = standing_refusal(graph, store) if selection.assets == (released,) else ""
        if refusal:
            return dg.SkipReason(f"The model of {window} stands refused: {refusal}.")
    except MlAssetsError as error:
        return dg.SkipReason(why_not(error))
    reason = found.plan.due[0].reason if found.plan.due else found.gates
    return dg.RunRequest(
        asset_selection=list(selection.assets),
        asset_check_keys=list(selection.checks or ()),
        run_config=dict(found.config),
        tags=run_tags(graph, "schedule", {"why": f"model [{window}]: {reason}"}),
    )
