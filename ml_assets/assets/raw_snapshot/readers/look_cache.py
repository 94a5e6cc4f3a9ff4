"""A cache of earlier looks, so that unchanged files are not read again.

It may be lost at any time: then everything is read once more, and nothing else changes.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from ml_assets.errors import SourceError

Result = TypeVar("Result")

PATIENCE_SECONDS = 30.0
"""Another look at work lets go of the memory sooner."""
_TABLES = (
    "CREATE TABLE IF NOT EXISTS seen"
    " (place TEXT PRIMARY KEY, stamp TEXT NOT NULL, since REAL NOT NULL, receipt TEXT)",
    "CREATE TABLE IF NOT EXISTS turns"
    " (turn INTEGER PRIMARY KEY AUTOINCREMENT, place TEXT NOT NULL UNIQUE)",
)
_NOTE = (
    "INSERT INTO seen VALUES (?, ?, ?, NULL) ON CONFLICT (place) DO UPDATE"
    " SET stamp = excluded.stamp, since = excluded.since, receipt = NULL"
    " WHERE stamp <> excluded.stamp"
)
_KEEP = "UPDATE seen SET receipt = ? WHERE place = ? AND stamp = ?"
_PASS = "INSERT OR REPLACE INTO turns (place) VALUES (?)"  # and so with a new, larger number
_KNOWN = (
    "SELECT stamp, receipt, turn FROM turns LEFT JOIN seen ON seen.place = turns.place"
    " WHERE turns.place = ?"
)


@dataclass(frozen=True)
class Known:
    """Holds what is remembered of a place that is looked at in turn."""

    turn: int
    """Larger than that of any place that was looked at before."""
    stamp: str | None
    """None: its turn has come, and the look has not ended."""
    receipt: Mapping[str, Any] | None
    """None: it was not read since it looks like this."""


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

        def recall(database: sqlite3.Connection) -> dict[str, Any] | None:
            row = _row(database, place)
            return json.loads(row[2]) if row and row[0] == stamp and row[2] else None

        return self._do(recall)

    def keep(self, place: str, stamp: str, receipt: Mapping[str, Any]) -> None:
        """Remember a receipt for as long as the place looks like this."""
        text = json.dumps(receipt)
        self._do(lambda database: database.execute(_KEEP, (text, place, stamp)))

    def pass_turn(self, places: Iterable[str]) -> None:
        """Put the places at the end of the queue, in this order."""
        passed = [(place,) for place in places]
        self._do(lambda database: database.executemany(_PASS, passed))

    def known(self, places: Iterable[str]) -> dict[str, Known]:
        """Return what is remembered of those of the places whose turn has come once."""

        def recall(database: sqlite3.Connection) -> dict[str, Known]:
            rows = {place: database.execute(_KNOWN, (place,)).fetchone() for place in places}
            return {
                place: Known(turn, stamp, json.loads(receipt) if receipt else None)
                for place, (stamp, receipt, turn) in ((p, row) for p, row in rows.items() if row)
            }

        return self._do(recall)

    def _do(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._try(work)
        except sqlite3.OperationalError as error:
            raise SourceError(
                f"{self.file}, which holds what was looked at before, cannot be used: {error}. See"
                " that the disk has room and that this user may write there."
            ) from error
        except (sqlite3.DatabaseError, ValueError):  # damaged: begin anew, it is only a memory
            self.file.unlink(missing_ok=True)
            return self._try(work)

    def _try(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        with closing(sqlite3.connect(self.file, timeout=PATIENCE_SECONDS)) as database, database:
            for table in _TABLES:
                database.execute(table)
            return work(database)


def _row(database: sqlite3.Connection, place: str) -> tuple[str, float, str | None] | None:
    query = "SELECT stamp, since, receipt FROM seen WHERE place = ?"
    return database.execute(query, (place,)).fetchone()
