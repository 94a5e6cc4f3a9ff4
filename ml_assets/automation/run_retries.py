"""Chooses the run key to request next; a failed run gets a new key after a growing wait.

Its store may have been away, or its process was killed. The waits are in ``run_requests``.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import dagster as dg

from ml_assets.adapters.runs import PIPELINE_TAG, TRIGGER_TAG, ended_at, mark_dead, name_of
from ml_assets.automation.run_requests import (
    MAX_RETRIES_TAG,
    hindered,
    records_of,
    wait_after,
)
from ml_assets.automation.schedules import refresh_tick, running_refresh
from ml_assets.errors import counted
from ml_assets.spec.base import digest_of
from ml_assets.store.pipeline_context import Pipeline

ATTEMPTS = 8
"""Two hours, together with the waits of 1, 2, 4 ... 60 minutes between them."""
ATTEMPT_TAG = "ml_assets/attempt"
_LATELY = timedelta(days=1)
"""Longer than all waits of a refresh together: one that ended before is nobody's wish any more."""
_BY_DAGSTER = "dagster/will_retry"
_BY_HAND = "materialize it by hand in the UI."


def key_to_ask_by(instance: dg.DagsterInstance, what: list[object]) -> str | dg.SkipReason:
    """The key of the run that is to come, or was asked for; or why none is asked for.

    Dagster starts one run for a key: without another key, a run that failed would be the last.

    Args:
        what: the run is to be made from; where that changes, the attempts begin again.
    """
    keys, attempts, newest = asked_before(instance, what)
    if newest is not None and mark_dead(instance, [newest]):
        keys, attempts, newest = asked_before(instance, what)
    if newest is None:
        return keys[0]
    match newest.dagster_run.status:
        case dg.DagsterRunStatus.FAILURE if attempts == ATTEMPTS:
            return dg.SkipReason(
                f"failed {ATTEMPTS} times, last in {name_of(newest.dagster_run)}, whose log says"
                f" why. Fix the cause; then {_BY_HAND}"
            )
        case dg.DagsterRunStatus.FAILURE:
            wait = wait_after(newest, attempts - 1)
            return keys[attempts] if wait <= timedelta() else _waits(newest, wait)
        case dg.DagsterRunStatus.CANCELED:
            said = f"was cancelled in {name_of(newest.dagster_run)}: {_BY_HAND}"
            return dg.SkipReason(said)
        case _:
            return keys[attempts - 1]


def refresh_again(
    pipeline: Pipeline, instance: dg.DagsterInstance, opened: Callable[[], Pipeline]
) -> dg.RunRequest | None:
    """The refresh that a schedule asked for last, if it was hindered and its wait is over.

    A schedule asks once: a store that is away for a minute would cost the model a week. One that
    was switched off, or taken out of the spec, asks for nothing any more.

    Args:
        opened: the pipeline as it is now; called where there is such a run.
    """
    declared = pipeline.spec.automation.refresh
    if declared is None or running_refresh(pipeline.name, instance) is None:
        return None
    scheduled = {PIPELINE_TAG: pipeline.name, TRIGGER_TAG: "schedule"}
    filters = dg.RunsFilter(job_name=f"{pipeline.name}__refresh", tags=scheduled)
    for record in instance.get_run_records(filters=filters, limit=1):
        run = record.dagster_run
        attempt = int(run.tags.get(ATTEMPT_TAG, "1"))
        if attempt == ATTEMPTS or run.tags.get(_BY_DAGSTER) == "true":
            return None
        if ended_at(record) < datetime.now(UTC) - _LATELY:
            return None
        if not hindered(instance, run) or wait_after(record, attempt - 1) > timedelta():
            return None
        found = refresh_tick(opened())
        if isinstance(found, dg.RunRequest):
            why = f"{found.tags['why']}; run {run.run_id[:8]} failed for a temporary cause"
            more = {"why": why, MAX_RETRIES_TAG: "0", ATTEMPT_TAG: str(attempt + 1)}
            return found.with_replaced_attrs(run_key=run.run_id, tags={**found.tags, **more})
    return None


def asked_before(
    instance: dg.DagsterInstance, what: list[object]
) -> tuple[list[str], int, dg.RunRecord | None]:
    """The keys of all attempts, how many of them were asked for, and the run of the last."""
    keys = [
        digest_of([*what, attempt] if attempt > 1 else what)[:32]
        for attempt in range(1, ATTEMPTS + 1)
    ]
    asked = records_of(instance, keys)
    attempts = max((n for n, key in enumerate(keys, start=1) if key in asked), default=0)
    return keys, attempts, asked[keys[attempts - 1]] if attempts else None


def _waits(failed: dg.RunRecord, wait: timedelta) -> dg.SkipReason:
    minutes = counted(-(wait // -timedelta(minutes=1)), "minute")
    run = name_of(failed.dagster_run)
    return dg.SkipReason(f"failed in {run} and is tried again in {minutes}.")
