"""Sensors and schedules as the daemon's records have them: switched on or off, and their ticks."""

from datetime import UTC, datetime

import dagster as dg
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    ScheduleInstigatorData,
    TickData,
    TickStatus,
)
from dagster_shared.error import SerializableErrorInfo


def switch(
    instance: dg.DagsterInstance,
    name: str,
    cron: str = "",
    *,
    on: bool = True,
    since: datetime | None = None,
    looked: datetime | None = None,
) -> InstigatorState:
    """A sensor, or with ``cron`` a schedule, that was switched on or off; now where not said.

    Args:
        looked: when the daemon wrote down last that it had looked at the schedule.
    """
    origin = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
    began = (since or datetime.now(UTC)).timestamp()
    state = InstigatorState(
        RemoteInstigatorOrigin(origin, name),
        InstigatorType.SCHEDULE if cron else InstigatorType.SENSOR,
        InstigatorStatus.RUNNING if on else InstigatorStatus.STOPPED,
        ScheduleInstigatorData(cron, began, looked and looked.timestamp()) if cron else None,
    )
    return instance.add_instigator_state(state)


def tick(
    instance: dg.DagsterInstance,
    state: InstigatorState,
    at: datetime | None = None,
    *,
    run: str = "",
    said: str = "",
    error: SerializableErrorInfo | None = None,
) -> None:
    """One tick: it asked for a run, it failed, or it asked for nothing; now where not said."""
    status = TickStatus.FAILURE if error else TickStatus.SUCCESS if run else TickStatus.SKIPPED
    data = TickData(
        state.instigator_origin_id,
        state.instigator_name,
        state.instigator_type,
        status,
        (at or datetime.now(UTC)).timestamp(),
        run_ids=[run] if run else [],
        error=error,
        skip_reason=said or None,
        selector_id=state.selector_id,
    )
    instance.create_tick(data)
