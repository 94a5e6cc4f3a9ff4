"""The refs of the embedded store: branches, tags, signatures and grafts in one SQLite file.

A signature is of a commit that ``main`` named at some time, or of a graft; it comes with them, in
one transaction. A graft replaces the parents of a commit whose own were collected: history goes on
at the next older commit that was kept. A tag is not signed: it names what is.
"""

import contextlib
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path

from ml_assets.errors import StorageError, StoreAway
from ml_assets.store.disk import may_write, refusal
from ml_assets.store.signing import Signature

_SCHEMA = """
create table if not exists refs (name text primary key, kind text not null, target text not null);
create table if not exists grafts (commit_id text primary key, parent text);
create table if not exists signatures (commit_id text primary key, key text, value text);
"""


SignGraft = Callable[[str, str | None], Signature | None]
"""(commit, parent) -> the signature of a graft."""
BUSY_SECONDS = 30.0
"""How long a process waits for another that writes."""
_NO_ANSWER = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
}
_Stamp = tuple[tuple[int, int, int] | None, ...]
"""Inode, time of the last change and size of the database and of its log."""


class Refs:
    """Every change is one transaction; any number of processes may use the file at once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._copy_of: _Stamp | None = None
        """The state of the files that the connection holds a copy of; None: it is on the files."""
        if may_write(root):
            with self._open() as refs:
                refs.executescript(_SCHEMA)

    def target(self, name: str) -> str | None:
        """The commit of a branch or a tag; None where there is none of that name."""
        with self._open() as refs:
            row = refs.execute("select target from refs where name = ?", [name]).fetchone()
        return row[0] if row else None

    def tags(self) -> dict[str, str]:
        with self._open() as refs:
            return dict(refs.execute("select name, target from refs where kind = 'tag'"))

    def named(self) -> dict[str, str]:
        """Every branch and tag -> its commit."""
        with self._open() as refs:
            return dict(refs.execute("select name, target from refs"))

    def tag(self, name: str, target: str) -> str:
        """Make a tag where the name is free; what it names then."""
        with self._open() as refs:
            refs.execute("insert or ignore into refs values (?, 'tag', ?)", [name, target])
            return refs.execute("select target from refs where name = ?", [name]).fetchone()[0]

    def untag(self, name: str) -> None:
        """Take a tag away; a branch of that name stays."""
        with self._open() as refs:
            refs.execute("delete from refs where name = ? and kind = 'tag'", [name])

    def begin(self, name: str, target: str, signature: Signature | None) -> str | None:
        """Make the first branch of a store in which nothing was named or signed before; what it
        names then. None: there was something, and the branch is gone."""
        with self._open() as refs:
            made = refs.execute(
                "insert or ignore into refs select ?, 'branch', ? where not exists"
                " (select 1 from refs) and not exists (select 1 from signatures)",
                [name, target],
            )
            if made.rowcount == 1:
                _sign(refs, target, signature)
            row = refs.execute("select target from refs where name = ?", [name]).fetchone()
        return row[0] if row else None

    def move(self, name: str, expected: str, new: str, signature: Signature | None) -> bool:
        """Compare-and-swap."""
        with self._open() as refs:
            moved = refs.execute(
                "update refs set target = ? where name = ? and target = ?", [new, name, expected]
            )
            if moved.rowcount == 1:
                _sign(refs, new, signature)
            return moved.rowcount == 1

    def signature(self, commit: str) -> Signature | None:
        """The signature of whoever vouched for a commit; None where nobody did."""
        with self._open() as refs:
            found = refs.execute(
                "select key, value from signatures where commit_id = ?", [commit]
            ).fetchone()
        return Signature(*found) if found else None

    def grafts(self) -> list[tuple[str, str | None, Signature | None]]:
        """Commit, where history goes on behind it (None: it ends there), and who vouched for that.

        Read at once: a collection puts others in their place.
        """
        with self._open() as refs:
            rows = refs.execute(
                "select g.commit_id, g.parent, s.key, s.value from grafts g left join signatures s"
                " on s.commit_id = g.commit_id || '>' || coalesce(g.parent, '')"
            )
            return [(c, parent, Signature(k, v) if k else None) for c, parent, k, v in rows]

    def graft(self, grafts: Mapping[str, str | None], sign: SignGraft) -> None:
        """Make these all the grafts there are."""
        with self._open() as refs:
            refs.execute("delete from grafts")
            refs.executemany("insert into grafts values (?, ?)", grafts.items())
            for commit, parent in grafts.items():
                _sign(refs, graft_name(commit, parent), sign(commit, parent))

    def keep_signatures(self, kept: Container[str]) -> None:
        """Forget those of all other commits, and of grafts that are none any more."""
        with self._open() as refs:
            grafts = {graft_name(*row) for row in refs.execute("select * from grafts")}
            signed = [row[0] for row in refs.execute("select commit_id from signatures")]
            gone = [[name] for name in signed if name not in kept and name not in grafts]
            refs.executemany("delete from signatures where commit_id = ?", gone)

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """One transaction on the connection that stays open.

        The last close of a database in WAL mode writes a checkpoint to the disk; opened for every
        question, that was the largest part of what publishing costs.
        """
        with self._turn:
            try:
                connection = self._current()
                with connection:
                    yield connection
            except sqlite3.DatabaseError as error:
                said = refusal(error, self._root)
                kind = StoreAway if _no_answer(error) else StorageError
                found = kind(f"The refs of {self._root} cannot be used: {error}")
                raise said or found from error

    def _current(self) -> sqlite3.Connection:
        known = self._connection
        if known and (self._copy_of is None or self._copy_of == self._stamp()):
            return known
        if may_write(self._root):
            self._connection, self._copy_of = self._connect(), None
        else:
            self._connection, self._copy_of = self._copied()
        if known:
            known.close()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        file = self._root / "refs.db"
        connection = sqlite3.connect(
            file, timeout=BUSY_SECONDS, check_same_thread=False
        )  # by turns
        _use_wal(connection)
        connection.execute("pragma synchronous = full")
        connection.execute("pragma wal_autocheckpoint = 100")  # pages: 400 KB of log at most
        return connection

    def _copied(self) -> tuple[sqlite3.Connection, _Stamp]:
        """The refs of a store that cannot be written, as they are now, in memory.

        A database in WAL mode cannot be opened in place there: SQLite makes two files beside it.
        Where others write, a checkpoint between the two copies would lose what it moved.
        """
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            before = self._stamp()
            with tempfile.TemporaryDirectory() as folder:
                for file in self._files():
                    with contextlib.suppress(FileNotFoundError):  # the last writer's log goes
                        shutil.copyfile(file, Path(folder) / file.name)
                if self._stamp() == before:
                    return _in_memory(Path(folder) / "refs.db"), before
            if time.monotonic() > deadline:
                raise sqlite3.OperationalError("others changed them during every copy")

    def _stamp(self) -> _Stamp:
        """What differs after others have written."""
        return tuple(map(_stamp_of, self._files()))

    def _files(self) -> tuple[Path, Path]:
        return self._root / "refs.db", self._root / "refs.db-wal"


def _stamp_of(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:  # the last writer takes its log away
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _no_answer(error: sqlite3.Error) -> bool:
    """Return whether a database is busy or cannot be reached: nothing is known to be damaged."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_BUSY) & 0xFF in _NO_ANSWER


def graft_name(commit: str, parent: str | None) -> str:
    """Return what is signed of a graft."""
    return f"{commit}>{parent or ''}"


def _in_memory(file: Path) -> sqlite3.Connection:
    with contextlib.closing(sqlite3.connect(file)) as on_disk:
        copy = sqlite3.connect(":memory:", check_same_thread=False)  # by turns
        on_disk.backup(copy)
    copy.execute("pragma query_only = on")
    return copy


def _sign(refs: sqlite3.Connection, name: str, signature: Signature | None) -> None:
    if signature is None:  # no key is set
        return
    row = [name, signature.key, signature.value]
    refs.execute("insert or replace into signatures values (?, ?, ?)", row)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch a new file to WAL; SQLite does not wait for another process that does it just now."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
