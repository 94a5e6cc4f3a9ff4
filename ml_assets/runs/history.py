"""Dagster's run history on a laptop: its own SQLite files, without its cost for each event.

Dagster opens and closes a connection up to six times for an event, and each last close of a
database in WAL mode writes a checkpoint to the disk. Connections are kept open here. The files are
the same: either class reads what the other wrote.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster import StringSource
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Pool

_INDEX = "index"


class RunHistory(SqliteEventLogStorage):
    """The event log that ``dagster.yaml`` names.

    Args:
        home: DAGSTER_HOME; the files lie where Dagster's own class has them.

    An event survives the death of the process at once, and a power cut as soon as SQLite has
    written its next checkpoint: what was made is in the snapshot store, which waits for the disk.
    """

    def __init__(self, home: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._open: dict[str, Engine] = {}
        self._known_tables: set[str] = set()
        super().__init__(str(Path(home) / "history" / "runs"), inst_data)

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {"home": StringSource}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> "RunHistory":
        return cls(inst_data=inst_data, **config_value)

    @contextmanager
    def _connect(self, shard: str) -> Iterator["Connection"]:
        with self._db_lock, self._engine(shard).begin() as connection:
            yield connection

    def has_table(self, table_name: str) -> bool:
        """Asked for every check; a table that was there stays there."""
        if table_name not in self._known_tables and super().has_table(table_name):
            self._known_tables.add(table_name)
        return table_name in self._known_tables

    def wipe(self) -> None:
        self._close()
        super().wipe()

    def dispose(self) -> None:
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
