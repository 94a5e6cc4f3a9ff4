"""Reports runs that never began: a failed check for a late run or a missed tick.

A run that fails is red by itself; one that never starts would leave no trace.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.adapters.resources import StoresResource
from ml_assets.adapters.runs import (
    AT_WORK,
    UNENDED,
    living_runs,
    name_of,
)
from ml_assets.automation.jobs import AssetJob
from ml_assets.automation.schedules import cron_of, due_times, last_look, running_refresh
from ml_assets.errors import MlAssetsError
from ml_assets.spec.automation import AutomationSpec, duration_text
from ml_assets.store.pipeline_context import Pipeline

CHECK = "runs_begin"
SECONDS_BETWEEN_TICKS = 60


def runs_by_itself(declared: AutomationSpec) -> bool:
    """Return whether the spec declares anything that is to run without a person."""
    return bool(declared.refresh or declared.landing or declared.on_code_change)


def late_runs(pipeline: Pipeline, instance: dg.DagsterInstance, now: datetime) -> list[str]:
    """One sentence for each run that waits too long, and for a refresh that was not evaluated."""
    bound = pipeline.spec.automation.start_within
    records = living_runs(instance, pipeline.name, UNENDED)
    found = _waiting_too_long(records, bound, now)
    missed = _missed_refresh(pipeline, instance, bound, now)
    return [*found, *([missed] if missed else [])]


def late_runs_check(pipeline: Pipeline) -> dg.AssetChecksDefinition:
    """The check, as one runs it by hand; the sensor below keeps it up to date."""

    @dg.asset_check(
        asset=asset_key(pipeline, "released_model"),
        name=CHECK,
        description="Every requested run, and every scheduled refresh, has started within"
        f" {duration_text(pipeline.spec.automation.start_within)}.",
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        found = late_runs(pipeline, context.instance, datetime.now(UTC))
        return dg.AssetCheckResult(
            passed=not found, severity=dg.AssetCheckSeverity.ERROR, description=_told(found)
        )

    return check


def late_runs_sensor(pipeline: Pipeline, refresh: AssetJob) -> dg.SensorDefinition:
    """Reports the check whenever its answer changes: it turns red, and green again, by itself.

    A refresh that was hindered is asked for again.
    """

    @dg.sensor(
        name=f"{pipeline.name}__{CHECK}",
        description="Notices a run that never starts, or a refresh that was due and did not start;"
        " requests a refresh again if a store, a disk or the cluster made it fail.",
        job=refresh,
        minimum_interval_seconds=SECONDS_BETWEEN_TICKS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        tags={"pipeline": pipeline.name},
    )
    def evaluate(context: dg.SensorEvaluationContext, stores: StoresResource) -> dg.SensorResult:
        from ml_assets.automation.run_retries import refresh_again

        instance = context.instance
        found = late_runs_tick(pipeline, instance, context.cursor, datetime.now(UTC))
        try:
            again = refresh_again(pipeline, instance, lambda: stores.open(pipeline))
        except MlAssetsError:  # the store is away still: the check is told all the same
            return found
        if again is None:
            return found
        return found._replace(skip_reason=None, run_requests=[again])

    return evaluate


def late_runs_tick(
    pipeline: Pipeline, instance: dg.DagsterInstance, cursor: str | None, now: datetime
) -> dg.SensorResult:
    """One look: an evaluation of the check where the answer is another than in ``cursor``.

    A release outdates what was said before it (the UI then shows the check as never run), so the
    answer is given again after each.
    """
    key = asset_key(pipeline, "released_model")
    found = late_runs(pipeline, instance, now)
    told, release = _told(found), instance.get_latest_materialization_event(key)
    seen = f"{told} Release: {release.run_id if release else 'none'}"
    if seen == cursor:
        return dg.SensorResult(skip_reason=told, cursor=seen)
    evaluation = dg.AssetCheckEvaluation(
        key,
        CHECK,
        not found,
        metadata={},
        severity=dg.AssetCheckSeverity.ERROR,
        description=told,
    )
    return dg.SensorResult(skip_reason=told, cursor=seen, asset_events=[evaluation])


def _told(found: Sequence[str]) -> str:
    return " ".join(found) or "Everything that was to run has begun."


def _waiting_too_long(
    records: Sequence[dg.RunRecord], bound: timedelta, now: datetime
) -> list[str]:
    """A run in the queue behind another of the pipeline is not late: it waits for its turn."""
    working = any(r.dagster_run.status in AT_WORK[1:] for r in records)
    late: list[str] = []
    for record in records:
        run, waited = record.dagster_run, now - record.create_timestamp
        begun = run.status in AT_WORK[1:]
        if not begun and not working and waited > bound:
            late.append(
                f"{name_of(run).capitalize()} was asked for at"
                f" {record.create_timestamp:%Y-%m-%d %H:%M} UTC and has not begun."
            )
    return late


def _missed_refresh(
    pipeline: Pipeline, instance: dg.DagsterInstance, bound: timedelta, now: datetime
) -> str:
    declared = pipeline.spec.automation.refresh
    if declared is None:
        return ""
    state = running_refresh(pipeline.name, instance)
    if state is None:
        return ""
    zone = declared.timezone or pipeline.spec.partitions.timezone
    expression = cron_of(declared)
    since = getattr(state.instigator_data, "start_timestamp", None)
    if since is None:
        return ""
    after = max(since, last_look(instance, state))
    newest = due_times(expression, zone, datetime.fromtimestamp(after, UTC), now - bound)[-1:]
    if not newest or newest[0].timestamp() <= after:
        return ""
    due = newest[0]
    return (
        f"The refresh of {pipeline.name} was due at {due:%Y-%m-%d %H:%M %Z} and was not evaluated:"
        " Dagster's daemon was not running."
    )
