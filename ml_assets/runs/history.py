"""Dagster's run history on a laptop: its own SQLite files, without its cost for each event.

Dagster opens and closes a connection up to six times for an event, and each last close of a
database in WAL mode writes a checkpoint to the disk. Connections are kept open here, and the events
of a step's partitions are stored together. The files are the same: either class reads what the
other wrote.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster import AssetCheckEvaluation, DagsterEventType, EventLogEntry, StringSource
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Pool
    from sqlalchemy.dialects.sqlite import Insert

_INDEX = "index"
_HELD = 1000
"""Most events that wait to be stored together."""


class RunHistory(SqliteEventLogStorage):
    """The event log that ``dagster.yaml`` names.

    Args:
        home: DAGSTER_HOME; the files lie where Dagster's own class has them.

    An event survives the death of the process at once (one of a partition: with the event behind
    its burst), and a power cut as soon as SQLite has written its next checkpoint: what was made is
    in the snapshot store, which waits for the disk.
    """

    def __init__(self, home: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._open: dict[str, Engine] = {}
        self._known_tables: set[str] = set()
        self._held: list[EventLogEntry] = []
        self._holding = threading.RLock()
        super().__init__(str(Path(home) / "history" / "runs"), inst_data)

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {"home": StringSource}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> "RunHistory":
        return cls(inst_data=inst_data, **config_value)

    def store_event(self, event: EventLogEntry) -> None:
        """Store an event, or hold it until something else is stored or anything is read.

        A step tells of its partitions in one burst: what was made is published before.
        """
        if not _is_of_partition(event):
            super().store_event(event)
            return
        with self._holding:
            self._held.append(event)
            if len(self._held) >= _HELD:
                self._store_held()

    @contextmanager
    def _connect(self, shard: str) -> Iterator["Connection"]:
        self._store_held()
        with self._connection(shard) as connection:
            yield connection

    @contextmanager
    def _connection(self, shard: str) -> Iterator["Connection"]:
        with self._db_lock, self._engine(shard).begin() as connection:
            yield connection

    def _store_held(self) -> None:
        with self._holding:
            held, self._held = self._held, []
            for run_id, events in groupby(held, key=lambda event: event.run_id):
                self._store_together(run_id, tuple(events))

    def _store_together(self, run_id: str, events: Sequence[EventLogEntry]) -> None:
        """What Dagster's ``store_event`` does for each, in one transaction a file."""
        rows = [self._event_to_row(event) for event in events]
        with self._connection(run_id) as connection:
            connection.execute(SqlEventLogStorageTable.insert(), rows)
        with self._connection(_INDEX) as connection:
            numbered = SqlEventLogStorageTable.insert().returning(
                SqlEventLogStorageTable.c.id, sort_by_parameter_order=True
            )
            stored = list(zip(events, connection.scalars(numbered, rows), rows, strict=True))
            made = {number: event for event, number, _ in stored if not _evaluation(event)}
            self._store_asset_event_tags(connection, list(made.values()), list(made))
            newest = {event.get_dagster_event().asset_key: number for number, event in made.items()}
            for number in newest.values():  # an asset has one row: the others would be replaced
                self._store_asset_event(connection, made[number], number)
            checked = [
                _check_row(found, number, row)
                for event, number, row in stored
                if (found := _evaluation(event))
            ]
            if checked:
                connection.execute(_upsert_of_checks(), checked)

    def has_table(self, table_name: str) -> bool:
        """Asked for every check; a table that was there stays there."""
        if table_name not in self._known_tables and super().has_table(table_name):
            self._known_tables.add(table_name)
        return table_name in self._known_tables

    def wipe(self) -> None:
        self._store_held()
        self._close()
        super().wipe()

    def dispose(self) -> None:
        self._store_held()
        super().dispose()
        self._close()

    def _engine(self, shard: str) -> "Engine":
        """The index and the run in hand stay open: a page that lists runs opens one by one."""
        from sqlalchemy import NullPool, StaticPool

        if shard not in self._open:
            if shard not in self._initialized_dbs:
                self._initdb(self._engine_of(shard, NullPool))
                self._initialized_dbs.add(shard)
            for other in self._open.keys() - {_INDEX}:
                self._open.pop(other).dispose()
            self._open[shard] = self._engine_of(shard, StaticPool)
        return self._open[shard]

    def _engine_of(self, shard: str, pool: type["Pool"]) -> "Engine":
        from sqlalchemy import create_engine, event

        # the lock hands the connection from thread to thread
        arguments = {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
        url = self.conn_string_for_shard(shard)
        engine = create_engine(url, poolclass=pool, connect_args=arguments)
        event.listen(engine, "connect", _settle)
        return engine

    def _close(self) -> None:
        with self._db_lock:
            for engine in self._open.values():
                engine.dispose()
            self._open.clear()


def _settle(connection: Any, _: object) -> None:
    connection.execute("pragma synchronous = normal")


def _is_of_partition(event: EventLogEntry) -> bool:
    """Whether it says what became of one partition of an asset, in a run."""
    found = event.dagster_event
    if found is None or not event.run_id:
        return False
    evaluation = _evaluation(event)
    if evaluation is not None:
        return evaluation.partition is not None
    return found.is_step_materialization and found.partition is not None


def _evaluation(event: EventLogEntry) -> AssetCheckEvaluation | None:
    found = event.dagster_event
    if found is None or found.event_type is not DagsterEventType.ASSET_CHECK_EVALUATION:
        return None
    return found.asset_check_evaluation_data


def _check_row(found: AssetCheckEvaluation, number: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """The evaluation's row among all checks, from its number and its row among all events."""
    target = found.target_materialization_data
    status = AssetCheckExecutionRecordStatus
    return {
        "asset_key": found.asset_key.to_string(),
        "check_name": found.check_name,
        "run_id": row["run_id"],
        "partition": found.partition,
        "execution_status": (status.SUCCEEDED if found.passed else status.FAILED).value,
        "evaluation_event": row["event"],
        "evaluation_event_timestamp": row["timestamp"],
        "evaluation_event_storage_id": number,
        "materialization_event_storage_id": target.storage_id if target else None,
    }


_REPLACED = (
    "execution_status",
    "evaluation_event",
    "evaluation_event_timestamp",
    "evaluation_event_storage_id",
    "materialization_event_storage_id",
)


def _upsert_of_checks() -> "Insert":
    """A check that was planned, or was evaluated before in its run, is replaced."""
    from sqlalchemy.dialects.sqlite import insert

    new = insert(AssetCheckExecutionsTable)
    key = ["asset_key", "check_name", "run_id", "partition"]
    rest = {name: new.excluded[name] for name in _REPLACED}
    return new.on_conflict_do_update(key, set_=rest)
