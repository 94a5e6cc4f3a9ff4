"""Finds the key to ask for a run by; one that failed is asked for again, after a longer wait each
time: its store may have been away, or its process was killed."""

from datetime import timedelta

import dagster as dg

from ml_assets.adapters.runs import mark_dead, name_of
from ml_assets.automation.run_requests import records_of, wait_after
from ml_assets.errors import counted
from ml_assets.spec.base import digest_of

ATTEMPTS = 8
"""Two hours, together with the waits of 1, 2, 4 ... 60 minutes between them."""
_BY_HAND = "materialize it by hand in the UI."


def key_to_ask_by(instance: dg.DagsterInstance, what: list[object]) -> str | dg.SkipReason:
    """The key of the run that is to come, or was asked for; or why none is asked for.

    Dagster starts one run for a key: without another key, a run that failed would be the last.

    Args:
        what: the run is to be made from; where that changes, the attempts begin again.
    """
    keys, attempts, newest = asked_before(instance, what, ATTEMPTS)
    if newest is not None and mark_dead(instance, [newest]):
        keys, attempts, newest = asked_before(instance, what, ATTEMPTS)
    if newest is None:
        return keys[0]
    match newest.dagster_run.status:
        case dg.DagsterRunStatus.FAILURE if attempts == ATTEMPTS:
            return dg.SkipReason(
                f"failed {ATTEMPTS} times, last in {name_of(newest.dagster_run)}, whose log says"
                f" why. Mend that; then {_BY_HAND}"
            )
        case dg.DagsterRunStatus.FAILURE:
            wait = wait_after(newest, attempts - 1)
            return keys[attempts] if wait <= timedelta() else _waits(newest, wait)
        case dg.DagsterRunStatus.CANCELED:
            said = f"was cancelled in {name_of(newest.dagster_run)}: {_BY_HAND}"
            return dg.SkipReason(said)
        case _:
            return keys[attempts - 1]


def asked_before(
    instance: dg.DagsterInstance, what: list[object], most: int
) -> tuple[list[str], int, dg.RunRecord | None]:
    """The keys of so many attempts, how many of them were asked for, and the run of the last."""
    keys = [
        digest_of([*what, attempt] if attempt > 1 else what)[:32] for attempt in range(1, most + 1)
    ]
    asked = records_of(instance, keys)
    attempts = max((n for n, key in enumerate(keys, start=1) if key in asked), default=0)
    return keys, attempts, asked[keys[attempts - 1]] if attempts else None


def _waits(failed: dg.RunRecord, wait: timedelta) -> dg.SkipReason:
    minutes = counted(-(wait // -timedelta(minutes=1)), "minute")
    run = name_of(failed.dagster_run)
    return dg.SkipReason(f"failed in {run} and is asked for again in {minutes}.")
