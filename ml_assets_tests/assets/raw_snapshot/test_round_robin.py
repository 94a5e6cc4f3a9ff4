"""A table of many partitions is looked at in turn: a look ends in time, and no change is missed."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ml_assets.assets.raw_snapshot.readers import arrived_files as turns
from ml_assets.assets.raw_snapshot.readers.read_source import Looked, Seen, look
from ml_assets.errors import SourceError
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import SqlSource
from ml_assets_tests.assets.raw_snapshot.delivering import NOW
from ml_assets_tests.assets.raw_snapshot.test_sql_look import Statements, change

DAYS = tuple(
    PartitionWindow(f"2024-01-{day:02}", at, at + timedelta(days=1))
    for day, at in ((day, datetime(2024, 1, day, tzinfo=UTC)) for day in range(1, 9))
)
KEYS = tuple(day.key for day in DAYS)
EMPTY = "2024-01-03"
OTHERS = len(KEYS) - turns.NEWEST
"""Looks until each has been looked at, when each look has time for a single one of the older."""
SOURCE = SqlSource.model_validate(
    {
        "kind": "sql",
        "connection": "SHOP",
        "table": "sales",
        "watermark": "sold",
        "columns": {"sold": "datetime", "pieces": "int64"},
        "key": ["sold"],
        "contract": "c.json",
    }
)


@pytest.fixture
def table(tmp_path: Path) -> str:
    file = tmp_path / "sales.db"
    rows = [(f"{key} 12:00:00.000000", 1) for key in KEYS if key != EMPTY]
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE sales (sold DATETIME, pieces BIGINT)")
        connection.executemany("INSERT INTO sales VALUES (?, ?)", rows)
    return f"sqlite:///{file}"


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SECONDS", 0.0)


def glance(url: str, memory: Path, now: datetime = NOW) -> tuple[Looked, list[str]]:
    """A look of a process of its own, and what it asked of the ranges of the table."""
    with Statements() as statements:
        found = look("sales", SOURCE, Path("/nowhere"), lambda _: url, DAYS, Seen(memory), now)
    texts = [" ".join(text.split()) for text in statements.said]
    return found, [text for text in texts if "sales.sold >= " in text]


def counting(asked: Sequence[str]) -> int:
    return sum(text.startswith("SELECT count(*)") for text in asked)


def glances(url: str, memory: Path, number: int = OTHERS) -> Looked:
    return [glance(url, memory)[0] for _ in range(number)][-1]


def test_a_look_counts_what_it_has_time_for_and_the_next_one_goes_on(table: str, tmp_path: Path):
    memory = tmp_path / "seen.db"
    known: list[int] = []
    for _ in range(OTHERS):
        found, asked = glance(table, memory)
        assert counting(asked) == turns.NEWEST + 1, "whatever the number of partitions"
        known.append(len(found.keys) + (EMPTY not in found.later))
        assert {*found.keys} | {*found.later} | {EMPTY} == {*KEYS}
    assert known == list(range(turns.NEWEST + 1, len(KEYS) + 1)), "one more at each look"
    found, asked = glance(table, memory)
    assert counting(asked) == len(asked) == turns.NEWEST + 1, "and no row is read again"
    at_once = look("sales", SOURCE, Path("/nowhere"), lambda _: table, DAYS)
    assert (found.keys, found.later) == (at_once.keys, ())
    assert [found.receipt(k) for k in found.keys] == [at_once.receipt(k) for k in at_once.keys]


def test_where_there_is_time_each_look_is_at_all_of_them(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(turns, "SECONDS", 3600.0)
    for _ in range(2):
        found, asked = glance(table, tmp_path / "seen.db")
        assert counting(asked) == len(KEYS)
        assert found.later == ()


def test_late_corrected_and_deleted_rows_are_found_within_one_round(table: str, tmp_path: Path):
    memory = tmp_path / "seen.db"
    before = glances(table, memory)
    change(table, "INSERT INTO sales VALUES ('2024-01-01 01:00:00.000000', 1)")
    change(table, "UPDATE sales SET pieces = 2 WHERE sold LIKE '2024-01-02%'")
    change(table, f"INSERT INTO sales VALUES ('{EMPTY} 01:00:00.000000', 1)")
    change(table, "DELETE FROM sales WHERE sold LIKE '2024-01-04%'")
    after = glances(table, memory)
    assert after.keys == tuple(key for key in KEYS if key != "2024-01-04")
    same = {k for k in {*before.keys} & {*after.keys} if before.receipt(k) == after.receipt(k)}
    assert same == {*KEYS} - {"2024-01-01", "2024-01-02", EMPTY, "2024-01-04"}


def test_a_late_row_of_the_newest_partitions_is_found_at_the_next_look(table: str, tmp_path: Path):
    memory = tmp_path / "seen.db"
    before = glances(table, memory)
    for key in KEYS[-turns.NEWEST :]:
        change(table, f"INSERT INTO sales VALUES ('{key} 13:00:00.000000', 1)")
        after, _ = glance(table, memory)
        assert after.receipt(key) != before.receipt(key)


def test_what_is_refused_stays_refused_between_its_turns_until_it_is_mended(
    table: str, tmp_path: Path
):
    memory = tmp_path / "seen.db"
    change(table, "UPDATE sales SET pieces = 'many' WHERE sold < '2024-01-02'")
    glances(table, memory)
    for _ in range(3):
        found, asked = glance(table, memory)
        assert len(asked) == turns.NEWEST + 1, "nor is it read when it is not its turn"
        with pytest.raises(SourceError, match="'pieces': «'many'» is not int64"):
            found.receipt("2024-01-01")
    change(table, "UPDATE sales SET pieces = 2 WHERE sold < '2024-01-02'")
    assert glances(table, memory).receipt("2024-01-01")["rows"] == 1


def test_a_partition_whose_reading_ends_the_process_does_not_keep_the_others_from_their_turn(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    memory = tmp_path / "seen.db"
    glance(table, memory)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("ml_assets.assets.raw_snapshot.readers.sql.read_sql", killed)
        glance(table, memory)
    found, _ = glance(table, memory)
    assert found.keys == ("2024-01-04", *KEYS[-3:])
    assert "2024-01-05" in found.later


@pytest.mark.parametrize("remembered", [True, False])
def test_a_look_for_no_partition_is_not_one_at_the_whole_table(
    table: str, tmp_path: Path, remembered: bool
):
    seen = Seen(tmp_path / "seen.db") if remembered else None
    with Statements() as statements:
        found = look("sales", SOURCE, Path("/nowhere"), lambda _: table, [], seen, NOW)
    assert (found.keys, found.later) == ((), ())
    assert not any("SELECT sales." in text for text in statements.said)
