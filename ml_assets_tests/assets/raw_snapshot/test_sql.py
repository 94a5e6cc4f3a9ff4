"""A SQL table is read by its watermark, quoted and bound, and no message holds a password."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from ml_assets.assets.raw_snapshot.python_values import SQL_VALUES
from ml_assets.assets.raw_snapshot.readers.read_source import look, read_source, receipt_of
from ml_assets.assets.raw_snapshot.schema import type_values
from ml_assets.errors import SourceError
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import SqlSource
from ml_assets_tests.assets.raw_snapshot.delivering import weeks_from

ROWS = [
    ("2013-01-06 23:59:59.999999", "EWR", 1),
    ("2013-01-07 00:00:00.000000", "EWR", 2),
    ("2013-01-13 23:00:00.000000", "JFK", None),
    ("2013-01-14 00:00:00.000000", "EWR", 4),
]
WEEKS = weeks_from(datetime(2013, 1, 7, tzinfo=UTC))


def source(**changes: Any) -> SqlSource:
    fields: dict[str, Any] = {
        "kind": "sql",
        "connection": "WEATHER",
        "table": "weather",
        "watermark": "select",
        "columns": {"select": "datetime", "origin": "string", "temp": "float64"},
        "key": ["origin", "select"],
        "contract": "c.json",
    }
    return SqlSource.model_validate(fields | changes)


def fill(path: Path, rows: Sequence[tuple[Any, ...]] = ROWS, time_type: str = "DATETIME") -> str:
    """A table with a column named as a keyword: identifiers must be quoted."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f'CREATE TABLE weather ("select" {time_type}, origin TEXT, temp REAL)')
        connection.executemany("INSERT INTO weather VALUES (?, ?, ?)", rows)
    return f"sqlite:///{path}"


def read(url: str, spec: SqlSource, window: PartitionWindow | None = WEEKS[0]):
    return read_source("weather", spec, Path("/nowhere"), lambda _: url, window)


def refusal(url: str, spec: SqlSource, window: PartitionWindow | None = WEEKS[0]) -> str:
    with pytest.raises(SourceError) as caught:
        read(url, spec, window)
    return str(caught.value)


def test_a_partition_is_its_half_open_range_of_the_watermark(tmp_path: Path):
    frame = read(fill(tmp_path / "w.db"), source()).frame.sort("select")
    assert frame.rows() == [
        (datetime(2013, 1, 7, tzinfo=UTC), "EWR", 2.0),
        (datetime(2013, 1, 13, 23, tzinfo=UTC), "JFK", None),
    ]


def test_a_whole_table_is_read_without_a_window(tmp_path: Path):
    spec = source(partitioned=False, watermark=None)
    assert read(fill(tmp_path / "w.db"), spec, None).frame.height == len(ROWS)


def test_times_in_a_column_of_text_are_times_and_what_is_none_is_named(tmp_path: Path):
    spec = source(partitioned=False, watermark=None)
    url = fill(tmp_path / "w.db", [*ROWS, ("2013-01-15 08:00", "LGA", 5)], "TEXT")
    found = read(url, spec, None).frame["select"].sort()
    assert found.dtype.is_temporal()
    assert found[-1] == datetime(2013, 1, 15, 8, tzinfo=UTC)
    message = refusal(fill(tmp_path / "w.db", [("soon", "EWR", 1)], "TEXT"), spec, None)
    assert "column 'select': «'soon'» is not datetime" in message


def test_the_receipt_follows_the_rows_of_its_range_only_and_not_their_order(tmp_path: Path):
    def receipt(rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
        url = fill(tmp_path / "w.db", rows)
        return receipt_of("weather", source(), Path("/nowhere"), lambda _: url, WEEKS[0])

    first = receipt(ROWS)
    assert first == receipt([*reversed(ROWS), ("2013-01-20 00:00:00.000000", "LGA", 1)])
    assert first != receipt([ROWS[1], ("2013-01-13 23:00:00.000000", "JFK", 7)])
    assert first["rows"] == 2


def test_a_receipt_names_the_database_that_was_read_and_no_other(tmp_path: Path):
    """``#x`` is a part of the name of a file: the driver opens that one."""
    honest = fill(tmp_path / "honest.db")
    other = fill(tmp_path / "honest.db#x", ROWS[:2])
    first, second = (read(url, source()).receipt["source"] for url in (honest, other))
    assert first == f"sqlite:///{tmp_path / 'honest.db'} weather"
    assert second == f"{honest}#x weather"
    assert receipt_of("weather", source(), Path("/"), lambda _: other, WEEKS[0])["source"] == second


def test_available_are_the_partitions_with_rows(tmp_path: Path):
    url = fill(tmp_path / "w.db")
    found = look("weather", source(), Path("/nowhere"), lambda _: url, WEEKS).keys
    assert found == ("2013-01-07", "2013-01-14")


def test_text_in_a_number_column_is_named_by_table_row_and_column(tmp_path: Path):
    url = fill(tmp_path / "w.db", [("2013-01-07 00:00:00.000000", "EWR", "warm")])
    message = refusal(url, source())
    assert "table weather [2013-01-07]" in message
    assert "origin = «EWR»" in message
    assert "column 'temp': «'warm'» is not float64" in message


LOOSE = {
    "id": "int64",
    "dose": "float64",
    "price": "float64",
    "origin": "string",
    "back": "boolean",
}


def loose(path: Path, **changes: object) -> str:
    """A table as ``.import --csv`` leaves it: whatever a column's type says, any value may lie."""
    path.unlink(missing_ok=True)
    row: dict[str, object] = {
        **{"id": 1, "dose": 1.234e-11, "price": 1.2399, "origin": "EWR", "back": 1},
        **{"at": "2013-01-07 00:00:00.000000", "day": "2013-01-07"},
    } | changes
    columns = "id INT, dose NUMERIC, price DECIMAL(10, 2), origin STRING, back BOOLEAN"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE loose ({columns}, at DATETIME, day DATE)")
        connection.execute("INSERT INTO loose VALUES (?, ?, ?, ?, ?, ?, ?)", tuple(row.values()))
    return f"sqlite:///{path}"


def loosely(**types: str) -> SqlSource:
    declared = {**LOOSE, "at": "datetime", "day": "date", **types}
    return source(table="loose", columns=declared, key=["id"], partitioned=False, watermark=None)


def test_values_of_sqlite_are_read_as_they_are_stored(tmp_path: Path):
    for number, truth in ((0, False), (1, True), (None, None)):
        frame = read(loose(tmp_path / "w.db", back=number), loosely(), None).frame
        assert frame.select(*LOOSE).rows() == [(1, 1.234e-11, 1.2399, "EWR", truth)]
    text = read(loose(tmp_path / "w.db", back="false"), loosely(back="string"), None).frame
    assert text["back"].to_list() == ["false"]


@pytest.mark.parametrize(
    ("column", "stored", "said"),
    [
        ("back", "false", "column 'back': «'false'» is not boolean"),
        ("back", "", "column 'back': «''» is not boolean"),
        ("back", 2, "column 'back': «2» is not boolean"),
        ("dose", "much", "column 'dose': «'much'» is not float64"),
        ("at", 1700000000, "SQLite keeps a time as text"),
        ("day", 20130107, "SQLite keeps a time as text"),
        ("at", "0000-01-01 00:00:00", "SQLite keeps a time as text"),
    ],
)
def test_what_sqlite_holds_against_the_type_of_its_column_is_refused(
    tmp_path: Path, column: str, stored: object, said: str
):
    assert said in refusal(loose(tmp_path / "w.db", **{column: stored}), loosely(), None)


def test_a_zoned_time_whose_year_in_utc_is_10000_is_named():
    times = [datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=h))) for h in (5, -5)]
    typed = type_values({"at": times}, {"at": "datetime"}, SQL_VALUES)
    (said,) = typed.problems(lambda row: f"row {row}")
    assert said.startswith("row 1, column 'at': «datetime.datetime(9999, 12, 31, 23,")


def test_a_missing_database_is_not_created_and_the_setting_is_named(tmp_path: Path):
    absent = tmp_path / "absent.db"
    message = refusal(f"sqlite:///{absent}", source())
    assert "ML_ASSETS_SQL_WEATHER" in message
    assert not absent.exists()


def test_a_missing_table_names_the_closest(tmp_path: Path):
    assert "Did you mean 'weather'?" in refusal(fill(tmp_path / "w.db"), source(table="wether"))


def test_a_renamed_column_is_named(tmp_path: Path):
    columns = {"select": "datetime", "origin": "string", "temperature": "float64"}
    message = refusal(fill(tmp_path / "w.db"), source(columns=columns))
    assert "'temperature' is declared but not there" in message


def test_an_empty_range_is_an_error_that_names_it(tmp_path: Path):
    message = refusal(fill(tmp_path / "w.db"), source(), WEEKS[2])
    assert "has no rows with 2013-01-21T00:00:00+00:00 <= select" in message


def test_rows_without_a_watermark_are_refused_with_their_number_unless_told_to_leave_them(
    tmp_path: Path,
):
    url = fill(tmp_path / "w.db", [*ROWS, (None, "EWR", 1), (None, "JFK", 2)])
    said = "table weather: 2 rows without 'select' would belong to no partition"
    assert said in refusal(url, source())
    with pytest.raises(SourceError, match=said):
        look("weather", source(), Path("/nowhere"), lambda _: url, WEEKS)
    leaving = source(ignore_null_watermark=True)
    assert read(url, leaving).frame.height == 2
    whole = source(partitioned=False, watermark=None)
    assert read(url, whole, None).frame.height == len(ROWS) + 2, "a whole table has all rows"


def test_a_watermark_kept_as_text_is_refused(tmp_path: Path):
    assert "TIMESTAMP" in refusal(fill(tmp_path / "w.db", time_type="TEXT"), source())


def test_times_in_a_text_form_that_sorts_wrongly_are_refused(tmp_path: Path):
    rows = [("2013-01-07T00:00:00", "EWR", 1), ("2013-01-07T09:00:00", "EWR", 1)]
    window = PartitionWindow("p", datetime(2013, 1, 7, 5, tzinfo=UTC), WEEKS[0].end)
    assert "does not sort by time" in refusal(fill(tmp_path / "w.db", rows), source(), window)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+nodriver://user:s3cr%2Fet@127.0.0.1:1/db",
        "://user:s3cr%2Fet@host/db",
        "sqlite:////nowhere/x.db?password=s3cr%2Fet",
        "mysql://user:s3cr%2Fet@127.0.0.1:1/db",
        "postgresql+psycopg://ann:s3cr@tpw@db.invalid/db",
        "postgresql+psycopg://ann:s3cr@tpw/x@db.invalid/db",
    ],
)
def test_no_message_holds_a_password(url: str):
    with pytest.raises(SourceError) as caught:
        read(url, source())
    seen: BaseException | None = caught.value
    while seen is not None:
        assert "s3cr" not in str(seen) and "tpw" not in str(seen)
        seen = seen.__cause__
