"""What was looked at before, so that a look does not read again what nobody touched.

It may be lost at any time: then everything is read once more, and nothing else changes.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from ml_assets.errors import SourceError

Result = TypeVar("Result")

PATIENCE_SECONDS = 30.0
"""Another look at work lets go of the memory sooner."""
_TABLE = (
    "CREATE TABLE IF NOT EXISTS seen"
    " (place TEXT PRIMARY KEY, stamp TEXT NOT NULL, since REAL NOT NULL, receipt TEXT)"
)
_NOTE = (
    "INSERT INTO seen VALUES (?, ?, ?, NULL) ON CONFLICT (place) DO UPDATE"
    " SET stamp = excluded.stamp, since = excluded.since, receipt = NULL"
    " WHERE stamp <> excluded.stamp"
)
_KEEP = "UPDATE seen SET receipt = ? WHERE place = ? AND stamp = ?"


class Seen:
    """Place -> its stamp (which changes when the place does), since when, and its receipt."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def look(self, stamps: Mapping[str, str], now: datetime) -> dict[str, datetime]:
        """Write down what the places look like: since when each has looked like that."""

        def note(database: sqlite3.Connection) -> dict[str, datetime]:
            rows = [(place, stamp, now.timestamp()) for place, stamp in stamps.items()]
            database.executemany(_NOTE, rows)
            found = {place: _row(database, place) for place in stamps}
            return {
                place: datetime.fromtimestamp(row[1], UTC) if row else now
                for place, row in found.items()
            }

        return self._do(note)

    def receipt(self, place: str, stamp: str) -> dict[str, Any] | None:
        """The receipt that was kept while the place looked like this."""
        row = self._do(lambda database: _row(database, place))
        return json.loads(row[2]) if row and row[0] == stamp and row[2] else None

    def keep(self, place: str, stamp: str, receipt: Mapping[str, Any]) -> None:
        """Remember a receipt for as long as the place looks like this."""
        text = json.dumps(receipt)
        self._do(lambda database: database.execute(_KEEP, (text, place, stamp)))

    def _do(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._try(work)
        except sqlite3.OperationalError as error:
            raise SourceError(
                f"{self.file}, which holds what was looked at before, cannot be used: {error}. See"
                " that the disk has room and that this user may write there."
            ) from error
        except sqlite3.DatabaseError:  # damaged: begin anew, it is only a memory
            self.file.unlink(missing_ok=True)
            return self._try(work)

    def _try(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        with closing(sqlite3.connect(self.file, timeout=30)) as database, database:
            database.execute(_TABLE)
            return work(database)


def _row(database: sqlite3.Connection, place: str) -> tuple[str, float, str | None] | None:
    query = "SELECT stamp, since, receipt FROM seen WHERE place = ?"
    return database.execute(query, (place,)).fetchone()
