"""Dagster's SQLite files, held open: its storage makes an engine for each event it writes or reads.

A new engine opens the file, reads its schema, compiles each statement anew, and waits for the disk
at each commit. Here the engines of one process share a dialect, what was compiled, and connections.
"""

import logging
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self
from weakref import WeakSet

from sqlalchemy import Engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite import pysqlite

_MOST = 6
"""Files whose connection is kept: those of a run, the index, runs and schedules, and two more."""
_STATEMENTS = 500
_folders: set[str] = set()


def hold_open(folder: Path) -> None:
    """Let the engines of the SQLite files below a folder share what they would each make.

    Others, such as MLflow's and those of a team's sources, stay SQLAlchemy's own.
    """
    if str(folder) not in _folders:
        _folders.add(str(folder))
        # It would print the stack of a Ctrl-C that comes while a connection is put aside.
        logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
        registry.register("sqlite", __name__, "SharedDialect")


class _Compiled(dict[Any, Any]):
    """What was compiled, by its statement; begun anew where it grows long."""

    def __setitem__(self, statement: Any, found: Any) -> None:
        if len(self) >= _STATEMENTS:
            self.clear()
        super().__setitem__(statement, found)


class SharedDialect(pysqlite.SQLiteDialect_pysqlite):
    """SQLAlchemy's dialect, one for all engines of the files that are held open."""

    supports_statement_cache = True
    _one: ClassVar[Self | None] = None
    _compiled: ClassVar[_Compiled] = _Compiled()

    def __new__(cls, **_: Any) -> Self:
        """The one that there is: what was compiled is found by its dialect."""
        if cls._one is None:
            cls._one = super().__new__(cls)
        return cls._one

    def __init__(self, **given: Any) -> None:
        if "dbapi" not in self.__dict__:
            super().__init__(**given)

    @classmethod
    def get_dialect_cls(cls, url: Any) -> Any:
        """This one for a file that is held open, else SQLAlchemy's own."""
        folders = {str(parent) for parent in Path(url.database or "").parents}
        return cls if folders & _folders else pysqlite.SQLiteDialect_pysqlite

    @classmethod
    def engine_created(cls, engine: Engine) -> None:
        """Share what engines before this one compiled; SQLAlchemy asks it of other files too."""
        if isinstance(engine.dialect, cls):
            engine.update_execution_options(compiled_cache=cls._compiled)

    def connect(self, *given: Any, **named: Any) -> Any:
        """The open connection to a file that nobody uses now, or a new one."""
        return _kept.take(str(given[0]), lambda: self._opened(*given, **named))

    def _opened(self, *given: Any, **named: Any) -> "KeptConnection":
        named |= {"check_same_thread": False, "factory": KeptConnection}  # each is one's at a time
        connection = super().connect(*given, **named)
        assert isinstance(connection, KeptConnection)
        connection.execute("pragma synchronous = normal")
        return connection


class KeptConnection(sqlite3.Connection):
    """A connection that is put aside when it is closed; its cursors end with it."""

    place: "tuple[str, int, int, int] | None" = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._cursors = WeakSet[sqlite3.Cursor]()

    def cursor(self, *given: Any, **named: Any) -> sqlite3.Cursor:
        """A cursor, which is closed with the connection at the latest.

        The stack of an error may hold one in the middle of its rows. SQLite then refuses what an
        engine asks of each connection: "Error creating function".
        """
        made = super().cursor(*given, **named)
        self._cursors.add(made)
        return made

    def close(self) -> None:
        """Keep it for the next one who asks, or close it where it is not to be kept."""
        for cursor in [*self._cursors]:
            cursor.close()
        if self.place is None or not _kept.keep(self.place, self):
            super().close()

    def end(self) -> None:
        """Close it."""
        super().close()


class _Kept:
    """The connections that nobody uses, the newest last: one for each file."""

    def __init__(self) -> None:
        self._idle: OrderedDict[tuple[str, int, int, int], KeptConnection] = OrderedDict()
        self._turn = threading.Lock()

    def take(self, file: str, opened: Callable[[], KeptConnection]) -> KeptConnection:
        with self._turn:
            there = _place(file)
            found = self._idle.pop(there, None) if there else None
        if found is None:
            found = opened()
            found.place = _place(file)
        return found

    def keep(self, place: tuple[str, int, int, int], connection: KeptConnection) -> bool:
        with self._turn:
            if place in self._idle or place != _place(place[0]):
                return False
            self._idle[place] = connection
            oldest = self._idle.popitem(last=False)[1] if len(self._idle) > _MOST else None
        if oldest is not None:
            oldest.end()
        return True


def _place(file: str) -> tuple[str, int, int, int] | None:
    """A file as it is now, and this process: another may get its name, and a fork come by it."""
    try:
        there = Path(file).stat()
    except OSError:
        return None
    return file, there.st_dev, there.st_ino, os.getpid()


_kept = _Kept()
