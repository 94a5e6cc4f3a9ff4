"""The refresh schedule, which trains on the newest published window; and when a schedule is due."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from ml_assets.adapters.resources import StoresResource
from ml_assets.automation.jobs import AssetJob
from ml_assets.automation.tick_failures import why_not
from ml_assets.errors import MlAssetsError
from ml_assets.spec.automation import Timed, cron_expression
from ml_assets.store.pipeline_context import Pipeline

Tick = Callable[[Pipeline], dg.RunRequest | dg.SkipReason]
"""A pipeline as it is at the moment -> the run that is due, or one sentence why there is none."""


def schedules(declared: Pipeline, refresh: AssetJob) -> list[dg.ScheduleDefinition]:
    """The schedule that the spec declares."""
    timed = declared.spec.automation.refresh
    described = (
        "Makes the model again on the newest published window; skips when nothing has changed"
        " since."
    )
    return timed_schedules(declared, timed, "refresh_schedule", described, refresh, refresh_tick)


def timed_schedules(
    declared: Pipeline,
    timed: Timed | None,
    name: str,
    description: str,
    job: AssetJob,
    tick: Tick,
) -> list[dg.ScheduleDefinition]:
    """One schedule of a pipeline, ``<pipeline>__<name>``; none where no time is declared."""
    if timed is None:
        return []

    @dg.schedule(
        name=f"{declared.name}__{name}",
        description=description,
        job=job,
        cron_schedule=cron_of(timed),
        execution_timezone=timed.timezone or declared.spec.partitions.timezone,
        default_status=dg.DefaultScheduleStatus(timed.status.upper()),
    )
    def evaluate(
        context: dg.ScheduleEvaluationContext, stores: StoresResource
    ) -> dg.RunRequest | dg.SkipReason:
        from ml_assets.automation.run_requests import asked_once

        pipeline = stores.open(declared)
        return asked_once(context.instance, pipeline, tick(pipeline))

    return [evaluate]


def running_refresh(pipeline: str, instance: dg.DagsterInstance) -> Any:
    """The refresh schedule as Dagster keeps it; None: it is off, or no daemon has seen it yet."""
    name = f"{pipeline}__refresh_schedule"
    states = instance.all_instigator_state()
    return next((one for one in states if one.instigator_name == name and one.is_running), None)


def cron_of(timed: Timed) -> str:
    """Return when it is due, in cron's five fields."""
    return cron_expression(timed.every, timed.at, timed.cron)


def due_times(cron: str, timezone: str, since: datetime, until: datetime) -> list[datetime]:
    """Return the times between two moments, both included, oldest first.

    Dagster has no public iterator over a cron schedule, but windows that begin where one is due.
    """
    windows = dg.TimeWindowPartitionsDefinition(
        start=since.astimezone(ZoneInfo(timezone)),
        cron_schedule=cron,
        timezone=timezone,
        fmt="%Y-%m-%dT%H:%M:%S%z",
        end_offset=1,  # the last window has begun, and not ended
    )
    keys = windows.get_partition_keys(current_time=until)
    found = (datetime.fromisoformat(key) for key in keys)
    return [time for time in found if since <= time <= until]


def last_look(instance: dg.DagsterInstance, state: Any) -> float:
    """Return the time up to which the daemon has evaluated a schedule; 0: nobody knows.

    It is that of the schedule of then: of another one, nothing up to that time was missed.

    Args:
        state: an ``InstigatorState``, which Dagster keeps for itself.
    """
    ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
    looked = getattr(state.instigator_data, "last_iteration_timestamp", None) or 0.0
    return max([looked, *(tick.timestamp for tick in ticks)])


def refresh_tick(pipeline: Pipeline) -> dg.RunRequest | dg.SkipReason:
    """The run of one tick, with its window resolved here; or one sentence why there is none.

    A run of another kind that is at work is no reason to skip: this one waits in the queue.
    """
    from ml_assets.automation.planner.candidate_runs import model_candidate
    from ml_assets.automation.planner.graph_nodes import records_by_address
    from ml_assets.automation.run_requests import WANTED_TAG, run_request

    try:
        records = records_by_address(pipeline.store, pipeline.name)
        found = model_candidate(pipeline, records, as_of=None, data_only=False)
    except MlAssetsError as error:
        return dg.SkipReason(why_not(error))
    if isinstance(found, str):
        return dg.SkipReason(f"{found[0].upper()}{found[1:]}.")
    asked = run_request(pipeline, "schedule", [found], found.selection)
    return asked.with_replaced_attrs(tags={**asked.tags, WANTED_TAG: found.wanted})
