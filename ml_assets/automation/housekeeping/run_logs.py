"""The printed output of old runs' steps, which is deleted; Dagster's own record of runs stays."""

import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from ml_assets.adapters.runs import UNENDED, ended_at
from ml_assets.automation.housekeeping.inventory import measure
from ml_assets.automation.housekeeping.retention import Thing, run_name

GONE_TAG = "ml_assets/logs_deleted"
_PAGE = 500


def runs(instance: dg.DagsterInstance) -> list[Thing]:
    """The logs of every run that ended and still has them."""
    return [
        Thing(
            "run_logs",
            run_name(record.dagster_run.run_id),
            *_measure(instance, record.dagster_run.run_id),
            used=ended_at(record),
        )
        for record in _records(instance)
        if record.dagster_run.is_finished and GONE_TAG not in record.dagster_run.tags
    ]


def oldest_in_progress(instance: dg.DagsterInstance, besides: str | None) -> datetime | None:
    """Return when the longest of the runs that go on began; None where there is none.

    Args:
        besides: a run that does not count: the one that keeps house.
    """
    begun = [
        record.create_timestamp
        for record in instance.get_run_records(dg.RunsFilter(statuses=UNENDED))
        if record.dagster_run.run_id != besides
    ]
    return min(begun).replace(tzinfo=UTC) if begun else None


def delete(instance: dg.DagsterInstance, run_id: str) -> int:
    """Delete what a run that ended has printed and return the bytes freed; safe to repeat."""
    _, before = _measure(instance, run_id)
    try:
        instance.compute_log_manager.delete_logs(prefix=[run_id])
    except OSError as error:  # somebody laid a link there, or took the right away: the others go on
        warnings.warn(f"the log of run {run_id[:8]} could not be deleted: {error}", stacklevel=2)
        return 0
    instance.add_run_tags(run_id, {GONE_TAG: "true"})  # last: what is not marked is done again
    return before - _measure(instance, run_id)[1]


def _records(instance: dg.DagsterInstance) -> Iterator[dg.RunRecord]:
    cursor: str | None = None
    while page := instance.get_run_records(limit=_PAGE, cursor=cursor):
        yield from page
        cursor = page[-1].dagster_run.run_id


def _measure(instance: dg.DagsterInstance, run_id: str) -> tuple[int, int]:
    """Files and bytes of a run's logs; none where they lie on another machine."""
    return measure(Path(instance.storage_directory(), run_id))
