"""Finds the key to ask for a run by; one that failed is asked for again, after a longer wait each
time: its store may have been away, or its process was killed."""

from datetime import UTC, datetime, timedelta

import dagster as dg

from ml_assets.adapters.runs import mark_dead, name_of
from ml_assets.automation.run_requests import FIRST_WAIT, LONGEST_WAIT, ended_at, record_of
from ml_assets.errors import counted
from ml_assets.spec.base import digest_of

ATTEMPTS = 8
"""Two hours, together with the waits of 1, 2, 4 ... 60 minutes between them."""


def key_to_ask_by(instance: dg.DagsterInstance, what: list[object]) -> str | dg.SkipReason:
    """The key of the run that is to come, or was asked for; or why none is asked for.

    Dagster starts one run for a key: without another key, a run that failed would be the last.

    Args:
        what: the run is to be made from; where that changes, the attempts begin again.
    """
    failed: dg.RunRecord | None = None
    for attempt in range(ATTEMPTS):
        key = digest_of([*what, attempt + 1] if attempt else what)[:32]
        record = record_of(instance, key)
        if record and mark_dead(instance, [record]):
            record = record_of(instance, key)
        if record is None:
            wait = _wait(failed, attempt) if failed else timedelta()
            return key if wait <= timedelta() else _waits(failed, wait)
        if record.dagster_run.status != dg.DagsterRunStatus.FAILURE:
            return key
        failed = record
    assert failed is not None
    return dg.SkipReason(
        f"failed {ATTEMPTS} times, last in {name_of(failed.dagster_run)}, whose log says why. Mend"
        " that; then materialize it by hand in the UI."
    )


def _wait(failed: dg.RunRecord, attempt: int) -> timedelta:
    """How long until it is asked for again, after so many attempts."""
    due = ended_at(failed) + min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT)
    return due - datetime.now(UTC)


def _waits(failed: dg.RunRecord | None, wait: timedelta) -> dg.SkipReason:
    run = f" in {name_of(failed.dagster_run)}" if failed else ""
    minutes = counted(-(wait // -timedelta(minutes=1)), "minute")
    return dg.SkipReason(f"failed{run} and is asked for again in {minutes}.")
