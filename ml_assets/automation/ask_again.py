"""Finds the key to ask for a run by; one that failed is asked for again, after a longer wait each
time: its store may have been away, or its process was killed."""

from datetime import UTC, datetime, timedelta

import dagster as dg

from ml_assets.adapters.runs import mark_dead, name_of
from ml_assets.automation.run_requests import FIRST_WAIT, LONGEST_WAIT, ended_at, records_of
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
    keys = [
        digest_of([*what, attempt + 1] if attempt else what)[:32] for attempt in range(ATTEMPTS)
    ]
    asked = records_of(instance, keys)
    if mark_dead(instance, [*asked.values()]):
        asked = records_of(instance, keys)
    attempts = max((n for n, key in enumerate(keys, start=1) if key in asked), default=0)
    if not attempts:
        return keys[0]
    newest = asked[keys[attempts - 1]]
    match newest.dagster_run.status:
        case dg.DagsterRunStatus.FAILURE if attempts == ATTEMPTS:
            return dg.SkipReason(
                f"failed {ATTEMPTS} times, last in {name_of(newest.dagster_run)}, whose log says"
                f" why. Mend that; then {_BY_HAND}"
            )
        case dg.DagsterRunStatus.FAILURE:
            wait = _wait(newest, attempts)
            return keys[attempts] if wait <= timedelta() else _waits(newest, wait)
        case dg.DagsterRunStatus.CANCELED:
            said = f"was cancelled in {name_of(newest.dagster_run)}: {_BY_HAND}"
            return dg.SkipReason(said)
        case _:
            return keys[attempts - 1]


def _wait(failed: dg.RunRecord, attempt: int) -> timedelta:
    """How long until it is asked for again, after so many attempts."""
    due = ended_at(failed) + min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT)
    return due - datetime.now(UTC)


def _waits(failed: dg.RunRecord, wait: timedelta) -> dg.SkipReason:
    minutes = counted(-(wait // -timedelta(minutes=1)), "minute")
    run = name_of(failed.dagster_run)
    return dg.SkipReason(f"failed in {run} and is asked for again in {minutes}.")
