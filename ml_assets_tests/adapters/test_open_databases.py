"""Dagster's SQLite files, held open: engines share a connection, each that of its own file."""

import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.pool import NullPool

from ml_assets.adapters.open_databases import KeptConnection, SharedDialect, hold_open


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    hold_open(tmp_path / "held")
    (tmp_path / "held").mkdir()
    return tmp_path / "held"


def ask(file: Path, statement: str) -> list[tuple[object, ...]]:
    """One transaction on an engine of its own, as Dagster's storage does it."""
    engine = create_engine(f"sqlite:///{file}", poolclass=NullPool)
    with engine.begin() as connection:
        found = connection.execute(text(statement))
        rows = [tuple(row) for row in found] if found.returns_rows else []
    engine.dispose()
    return rows


def connection_of(file: Path) -> object:
    engine = create_engine(f"sqlite:///{file}", poolclass=NullPool)
    with engine.connect() as connection:
        return connection.connection.dbapi_connection


def test_one_engine_after_another_has_the_same_connection(folder: Path) -> None:
    first = connection_of(folder / "a.db")
    assert isinstance(first, KeptConnection)
    assert connection_of(folder / "a.db") is first
    assert connection_of(folder / "b.db") is not first


def test_a_statement_that_was_left_in_the_middle_ends_with_its_connection(folder: Path) -> None:
    rows = "with recursive n(i) as (select 1 union all select i + 1 from n) select i from n"
    engine = create_engine(f"sqlite:///{folder / 'a.db'}", poolclass=NullPool)
    left = engine.raw_connection()
    cursor = left.cursor()
    cursor.execute(rows)
    assert cursor.fetchone() == (1,)
    left.close()  # as after an error, whose stack still holds the cursor
    assert ask(folder / "a.db", "select 2") == [(2,)]
    with pytest.raises(sqlite3.ProgrammingError):
        cursor.fetchone()


def test_two_at_once_have_two_connections(folder: Path) -> None:
    ask(folder / "a.db", "create table t (x)")
    engine = create_engine(f"sqlite:///{folder / 'a.db'}", poolclass=NullPool)
    with engine.connect() as one, engine.connect() as other:
        assert one.connection.dbapi_connection is not other.connection.dbapi_connection


def test_a_file_that_took_the_place_of_another_is_opened_anew(folder: Path) -> None:
    file = folder / "a.db"
    ask(file, "create table t (x)")
    ask(file, "insert into t values (1)")
    shutil.rmtree(folder)
    folder.mkdir()
    ask(file, "create table t (x)")
    ask(file, "insert into t values (2)")
    assert ask(file, "select x from t") == [(2,)]
    with sqlite3.connect(file) as own:
        assert own.execute("select x from t").fetchall() == [(2,)]


def test_what_was_not_committed_is_gone_for_the_next_one(folder: Path) -> None:
    file = folder / "a.db"
    ask(file, "create table t (x)")
    engine = create_engine(f"sqlite:///{file}", poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("insert into t values (1)"))  # no commit
    assert ask(file, "select x from t") == []
    with sqlite3.connect(file, timeout=0) as own:
        own.execute("insert into t values (2)")  # no lock is left either


def test_few_files_stay_open(folder: Path) -> None:
    first = connection_of(folder / "0.db")
    for number in range(1, 20):
        connection_of(folder / f"{number}.db")
    assert isinstance(first, KeptConnection)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        first.execute("select 1")


def test_a_statement_is_compiled_once_for_all_engines(folder: Path) -> None:
    def compiled_anew() -> bool:
        engine = create_engine(f"sqlite:///{folder / 'a.db'}", poolclass=NullPool)
        seen: list[str] = []

        def note(
            _: Connection, __: object, ___: object, ____: object, context: object, *more: object
        ) -> None:
            seen.append(str(getattr(context, "cache_hit", None)))

        event.listen(engine, "before_cursor_execute", note)
        with engine.connect() as connection:
            connection.execute(text("select 41 + 1"))
        return "CACHE_HIT" not in seen[0]

    assert compiled_anew()
    assert not compiled_anew()


def test_files_elsewhere_are_sqlalchemys_own(folder: Path, tmp_path: Path) -> None:
    assert not isinstance(connection_of(tmp_path / "other.db"), KeptConnection)
    others = create_engine(f"sqlite:///{tmp_path / 'other.db'}", poolclass=NullPool)
    assert not isinstance(others.dialect, SharedDialect)
    held = create_engine(f"sqlite:///{folder / 'a.db'}", poolclass=NullPool)
    assert "compiled_cache" in held.get_execution_options()
    assert "compiled_cache" not in others.get_execution_options()  # it would grow the one of ours
    assert not isinstance(create_engine("sqlite://").dialect, SharedDialect)


def test_threads_write_side_by_side_and_lose_nothing(folder: Path) -> None:
    file = folder / "a.db"
    ask(file, "pragma journal_mode = wal")
    ask(file, "create table t (x)")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: ask(file, f"insert into t values ({n})"), range(200)))
    assert sorted(ask(file, "select x from t")) == [(n,) for n in range(200)]
