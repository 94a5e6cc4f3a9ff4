"""A look at a database counts and sums there; rows cross the wire only where that changed."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from ml_assets.assets.raw_snapshot.readers.read_source import Seen, look, read_source
from ml_assets.errors import SourceError
from ml_assets.spec.sources import SqlSource
from ml_assets_tests.assets.raw_snapshot.delivering import NOW, WEEKS
from ml_assets_tests.servers.postgres import PASSWORD, postgres

NOWHERE = Path("/nowhere")
SOURCE = SqlSource.model_validate(
    {
        "kind": "sql",
        "connection": "SHOP",
        "table": "stock",
        "watermark": "counted",
        "columns": {
            "counted": "datetime",
            "item": "int64",
            "price": "float64",
            "shop": "string",
            "open": "boolean",
        },
        "key": ["item", "counted"],
        "contract": "c.json",
    }
)
ROWS = [
    ("2024-01-01 00:00:00.000000", 1, 1.5, "north", True),
    ("2024-01-07 23:59:59.000000", 2**62, None, "south", False),
    ("2024-01-15 12:00:00.000000", 3, 2.5, "north", None),
]
CORRECTIONS = [
    "INSERT INTO stock VALUES ('2024-01-02 00:00:00.000000', 9, 1.0, 'west', true)",
    "DELETE FROM stock WHERE item = 1",
    "UPDATE stock SET price = 1.25 WHERE item = 1",
    "UPDATE stock SET price = NULL WHERE item = 1",
    "UPDATE stock SET item = 4611686018427387903 WHERE item > 3",
    "UPDATE stock SET shop = 'east' WHERE item = 1",
    "UPDATE stock SET open = false WHERE item = 1",
    "UPDATE stock SET counted = '2024-01-01 00:00:00.000001' WHERE item = 1",
]
TABLE = (
    "CREATE TABLE stock (counted {time}, item BIGINT, price {number}, shop VARCHAR, open BOOLEAN)"
)


class Statements:
    """What is asked of any database while this is open."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __enter__(self) -> "Statements":
        sa.event.listen(sa.Engine, "before_cursor_execute", self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sa.event.remove(sa.Engine, "before_cursor_execute", self._note)

    def _note(self, *arguments: Any) -> None:
        self.said.append(arguments[2])

    @property
    def reading_rows(self) -> int:
        """How many of them fetch the rows of the table."""
        texts = [" ".join(text.split()) for text in self.said]
        return sum(text.startswith("SELECT stock.counted") for text in texts)


@pytest.fixture
def lite(tmp_path: Path) -> str:
    file = tmp_path / "stock.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(TABLE.format(time="DATETIME", number="REAL"))
        connection.executemany("INSERT INTO stock VALUES (?, ?, ?, ?, ?)", ROWS)
    return f"sqlite:///{file}"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture
def big(server: str) -> str:
    change(server, "DROP TABLE IF EXISTS stock")
    change(server, TABLE.format(time="TIMESTAMPTZ", number="NUMERIC"))
    change(server, "SET TIME ZONE 'UTC'")
    for row in ROWS:
        values = ", ".join("NULL" if v is None else repr(v) for v in (f"{row[0]}+00", *row[1:]))
        change(server, f"INSERT INTO stock VALUES ({values})")
    return server


@pytest.fixture
def duck(tmp_path: Path) -> str:
    url = f"duckdb:///{tmp_path}/stock.duckdb"
    change(url, TABLE.format(time="TIMESTAMP", number="DECIMAL(18, 4)"))
    for row in ROWS:
        values = ", ".join("NULL" if v is None else repr(v) for v in row)
        change(url, f"INSERT INTO stock VALUES ({values})")
    return url


def change(url: str, statement: str) -> None:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text(statement))


def receipts(url: str, seen: Seen, now: datetime = NOW) -> tuple[dict[str | None, Any], int]:
    """The receipt of each week that is there, and how many of them were read for it."""
    with Statements() as statements:
        found = look("stock", SOURCE, NOWHERE, lambda _: url, WEEKS, seen, now)
        return {key: found.receipt(key) for key in found.keys}, statements.reading_rows


def hold_to_its_claim(url: str, tmp_path: Path) -> None:
    seen = Seen(tmp_path / "seen.db")
    first, read = receipts(url, seen)
    assert list(first) == ["2024-01-01", "2024-01-15"]
    assert read == 2
    again, read = receipts(url, Seen(seen.file))
    assert (again, read) == (first, 0), "nor after a restart"
    for statement in CORRECTIONS:
        change(url, statement)
        later, read = receipts(url, seen)
        assert read == 1, statement
        assert later["2024-01-01"] != first["2024-01-01"], statement
        assert later["2024-01-15"] == first["2024-01-15"], statement
        assert later == receipts(url, Seen(tmp_path / "another.db"))[0]
        first = later
        if "DELETE" in statement:
            change(
                url, "INSERT INTO stock VALUES ('2024-01-01 00:00:00.000000', 1, 1.5, 'n', true)"
            )
            first, _ = receipts(url, seen)


def test_a_look_at_sqlite_reads_only_what_changed(lite: str, tmp_path: Path):
    hold_to_its_claim(lite, tmp_path)


def test_what_sqlite_does_not_count_is_seen_within_a_day(lite: str, tmp_path: Path):
    seen = Seen(tmp_path / "seen.db")
    first, _ = receipts(lite, seen)
    swap = "CASE shop WHEN 'north' THEN 'south' ELSE 'north' END"
    change(lite, f"UPDATE stock SET shop = {swap} WHERE counted < '2024-01-08'")
    assert receipts(lite, seen) == (first, 0), "every count, end and sum is as it was"
    then = [NOW + timedelta(hours=hours) for hours in range(25)]
    looks = [receipts(lite, seen, now) for now in then]
    assert sum(read for _, read in looks) == 2, "each of the two weeks once"
    assert looks[-1][0]["2024-01-01"] != first["2024-01-01"]
    assert looks[-1][0]["2024-01-15"] == first["2024-01-15"]


@pytest.mark.parametrize("database", [pytest.param("big", marks=pytest.mark.daemon), "duck"])
def test_a_look_at_one_that_hashes_reads_only_what_changed(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
):
    big = request.getfixturevalue(database)
    hold_to_its_claim(big, tmp_path)
    seen = Seen(tmp_path / "swap.db")
    change(big, "INSERT INTO stock VALUES ('2024-01-03 00:00:00+00', 11, 7.0, 'a', true)")
    change(big, "INSERT INTO stock VALUES ('2024-01-04 00:00:00+00', 12, 8.0, 'a', true)")
    first, _ = receipts(big, seen)
    change(big, "UPDATE stock SET price = 15.0 - price WHERE item IN (11, 12)")
    later, read = receipts(big, seen)
    assert read == 1, "two values that changed places leave every sum as it was"
    assert later != first
    later, read = receipts(big, seen, NOW + timedelta(days=2))
    assert read == 0, "its hash tells all: nothing is read again for its age"


def test_postgres_is_read_by_its_watermark_whatever_its_types(big: str):
    found = read_source("stock", SOURCE, NOWHERE, lambda _: big, WEEKS[0]).frame.sort("counted")
    assert found.rows() == [
        (datetime(2024, 1, 1, tzinfo=UTC), 1, 1.5, "north", True),
        (datetime(2024, 1, 7, 23, 59, 59, tzinfo=UTC), 2**62, None, "south", False),
    ]
    change(big, "UPDATE stock SET price = 'Infinity' WHERE item = 1")
    with pytest.raises(SourceError, match="row with item = «1»"):
        read_source("stock", SOURCE, NOWHERE, lambda _: big, WEEKS[0])


def test_a_postgres_that_refuses_is_told_without_its_password(big: str, tmp_path: Path):
    seen = Seen(tmp_path / "seen.db")
    receipts(big, seen)
    assert PASSWORD.encode() not in seen.file.read_bytes()
    wrong = big.replace("/postgres", "/elsewhere")
    with pytest.raises(SourceError) as caught:
        look("stock", SOURCE, NOWHERE, lambda _: wrong, WEEKS, seen, NOW)
    assert "elsewhere" in str(caught.value)
    assert PASSWORD not in str(caught.value)
