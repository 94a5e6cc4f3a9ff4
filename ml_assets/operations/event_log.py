"""Dagster's event log: old runs lose their messages, never what became of assets and checks.

Dagster's own retention covers ticks only, and ``delete_run`` takes the asset events along. Here one
statement goes to SQLite's file of the run, or through the storage's connection to Postgres's table.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.events import ASSET_CHECK_EVENTS, ASSET_EVENTS, PIPELINE_EVENTS

from ml_assets.operations.inventory import measure
from ml_assets.operations.retention import Thing, run_name

if TYPE_CHECKING:
    from sqlalchemy import Connection

PRUNED_TAG = "ml_assets/log_pruned"
KEPT_EVENTS = sorted(
    event.value
    for event in {
        *ASSET_EVENTS,
        *ASSET_CHECK_EVENTS,
        *PIPELINE_EVENTS,
        dg.DagsterEventType.STEP_FAILURE,
    }
)
_PAGE = 500
_SMALL_PAGES = "pragma journal_mode = delete; pragma page_size = 512; vacuum"
"""An almost empty file has 28 pages, one a table or index: they need not have 4 KB each."""


def runs(instance: dg.DagsterInstance) -> list[Thing]:
    """The log of every run that ended and still has its messages."""
    return [
        Thing(
            "event_log",
            run_name(record.dagster_run.run_id),
            *_measure(instance, record.dagster_run.run_id),
            used=_ended(record),
        )
        for record in _records(instance)
        if record.dagster_run.is_finished and PRUNED_TAG not in record.dagster_run.tags
    ]


def oldest_in_progress(instance: dg.DagsterInstance, besides: str | None) -> datetime | None:
    """When the longest of the runs that go on began; None where there is none.

    Args:
        besides: a run that does not count: the one that keeps house.
    """
    begun = [
        record.create_timestamp
        for record in instance.get_run_records(dg.RunsFilter(statuses=_IN_PROGRESS))
        if record.dagster_run.run_id != besides
    ]
    return min(begun).replace(tzinfo=UTC) if begun else None


def prune(instance: dg.DagsterInstance, run_id: str) -> int:
    """Delete the messages of a run that ended and return the bytes freed; safe to repeat."""
    _, before = _measure(instance, run_id)
    _delete_messages(instance.event_log_storage, run_id)
    file = _file(instance.event_log_storage, run_id)
    if file is not None:
        _shrink(file)
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    instance.add_run_tags(run_id, {PRUNED_TAG: "true"})  # last: what is not marked is done again
    return before - _measure(instance, run_id)[1]


_IN_PROGRESS = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def _records(instance: dg.DagsterInstance) -> Iterator[dg.RunRecord]:
    cursor: str | None = None
    while page := instance.get_run_records(limit=_PAGE, cursor=cursor):
        yield from page
        cursor = page[-1].dagster_run.run_id


def _ended(record: dg.RunRecord) -> datetime:
    if record.end_time is not None:
        return datetime.fromtimestamp(record.end_time, UTC)
    return record.update_timestamp.replace(tzinfo=UTC)


def _measure(instance: dg.DagsterInstance, run_id: str) -> tuple[int, int]:
    """Files and bytes of a run's log where it has a file of its own."""
    file = _file(instance.event_log_storage, run_id)
    return measure(file) if file else (0, 0)


def _file(storage: object, run_id: str) -> Path | None:
    """SQLite's file of a run; None where there is none: another storage, a run without events."""
    from dagster._core.storage.event_log import SqliteEventLogStorage

    if not isinstance(storage, SqliteEventLogStorage):
        return None
    file = Path(storage.path_for_shard(run_id))
    return file if file.is_file() else None


def _delete_messages(storage: object, run_id: str) -> None:
    from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
    from dagster._core.storage.event_log.schema import SqlEventLogStorageTable

    if not isinstance(storage, SqlEventLogStorage):
        return
    kind = SqlEventLogStorageTable.c.dagster_event_type
    of_run = SqlEventLogStorageTable.c.run_id == run_id
    mere_message = kind.is_(None) | kind.not_in(KEPT_EVENTS)
    delete = SqlEventLogStorageTable.delete().where(of_run, mere_message)
    file = _file(storage, run_id)
    if file is not None:
        with _connected(file) as connection:
            connection.execute(delete)
    elif not isinstance(storage, SqliteEventLogStorage):  # whose connection would make a file
        with storage.run_connection(run_id) as connection:
            connection.execute(delete)


@contextlib.contextmanager
def _connected(file: Path) -> Iterator["Connection"]:
    """A connection of our own: the storage's may stay open, and the file could not shrink."""
    from sqlalchemy import NullPool, create_engine

    with create_engine(f"sqlite:///{file}", poolclass=NullPool).begin() as connection:
        yield connection


def _shrink(file: Path) -> None:
    """Give the space back; a file that somebody reads just now keeps it."""
    connection = sqlite3.connect(file, isolation_level=None, timeout=1)
    try:
        with contextlib.suppress(sqlite3.OperationalError):
            connection.executescript(_SMALL_PAGES)
        connection.execute("pragma journal_mode = wal")
    finally:
        connection.close()
