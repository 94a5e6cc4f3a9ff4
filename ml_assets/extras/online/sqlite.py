"""The online store in one SQLite file: for one machine, with no server."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ml_assets.errors import StoreAway
from ml_assets.extras.online.store import EntityRows, Rows, Served

_SECONDS_TO_WAIT = 30.0
"""For another writer."""
_TABLES = """
CREATE TABLE IF NOT EXISTS served (pipeline TEXT PRIMARY KEY, what TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rows (
    pipeline TEXT NOT NULL, entity TEXT NOT NULL, row TEXT NOT NULL, PRIMARY KEY (pipeline, entity)
) WITHOUT ROWID;
"""


class SqliteOnline:
    """OnlineStore in a file; it is made at first use. Readers go on while a version is loaded."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None
        self._opened = 0

    def current(self, pipeline: str) -> Served | None:
        found = self.get(pipeline, ())
        return found.served if found else None

    def get(self, pipeline: str, entities: Sequence[str]) -> EntityRows | None:
        if not self._file.exists():  # who reads begins no new one in its place
            return None
        with self._transaction("BEGIN") as connection:  # one state of the file for all questions
            what = connection.execute(
                "SELECT what FROM served WHERE pipeline = ?", (pipeline,)
            ).fetchone()
            if what is None:
                return None
            query = "SELECT row FROM rows WHERE pipeline = ? AND entity = ?"
            rows = [connection.execute(query, (pipeline, one)).fetchone() for one in entities]
        return EntityRows(Served.of_json(what[0]), tuple(row[0] if row else None for row in rows))

    def serve(self, served: Served, rows: Rows) -> None:
        with self._transaction("BEGIN IMMEDIATE") as connection:
            connection.execute("DELETE FROM rows WHERE pipeline = ?", (served.pipeline,))
            connection.executemany(
                "INSERT INTO rows VALUES (?, ?, ?)",
                ((served.pipeline, entity, row) for entity, row in rows),
            )
            connection.execute(
                "INSERT OR REPLACE INTO served VALUES (?, ?)", (served.pipeline, served.as_json())
            )

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        try:
            connection = self._open()
            connection.execute(begin)
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._connection = None
            raise StoreAway(
                f"The online store {self._file} cannot be used: {error}. Is it a database of this"
                " project (ML_ASSETS_ONLINE), and may this user write there?"
            ) from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is None or self._opened != self._inode():
            self._file.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._file, timeout=_SECONDS_TO_WAIT, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")  # who reads waits for nobody
            connection.executescript(_TABLES)
            self._connection, self._opened = connection, self._inode()
        return self._connection

    def _inode(self) -> int:
        """The inode of the file, in whose place another one may lie. 0: there is none."""
        return self._file.stat().st_ino if self._file.exists() else 0
