"""A table in a file of DuckDB: read as it is, never written to, refused in plain words."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ml_assets.assets.raw_snapshot.readers.read_source import Seen, look, read_source, receipt_of
from ml_assets.errors import SourceError
from ml_assets.spec.sources import SqlSource
from ml_assets_tests.assets.raw_snapshot.delivering import WEEKS

TABLE = """CREATE TABLE sales (
    "select" {time}, id BIGINT, price DECIMAL(20, 12), day DATE, shop VARCHAR, open BOOLEAN
)"""
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
LAST = datetime(2024, 1, 7, 23, 59, 59, 999999, tzinfo=UTC)
ROWS = [
    (FIRST, 2**53 + 1, "1.234567890123", date(2024, 1, 1), "süd", True),
    (LAST, None, None, None, None, None),
    (datetime(2024, 1, 15, tzinfo=UTC), 3, "2.5", date(2024, 1, 15), "north", False),
]
HOLDING = """
import duckdb, sys
held = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "reads")
print(flush=True)
input()
"""


def source(**changes: Any) -> SqlSource:
    fields: dict[str, Any] = {
        "kind": "sql",
        "connection": "SHOP",
        "table": "sales",
        "watermark": "select",
        "columns": {
            "select": "datetime",
            "id": "int64",
            "price": "float64",
            "day": "date",
            "shop": "string",
            "open": "boolean",
        },
        "key": ["select"],
        "contract": "c.json",
    }
    return SqlSource.model_validate(fields | changes)


def filled(folder: Path, time: str = "TIMESTAMP") -> Path:
    file = folder / "shop.duckdb"
    with duckdb.connect(file) as connection:
        connection.execute(TABLE.format(time=time))
        for at, *rest in ROWS:
            value = at.replace(tzinfo=None) if time == "TIMESTAMP" else at
            connection.execute("INSERT INTO sales VALUES (?, ?, ?, ?, ?, ?)", [value, *rest])
        connection.execute("CREATE SCHEMA old; CREATE VIEW old.sales AS FROM main.sales")
    return file


def read(file: Path, **changes: Any):
    return read_source(
        "sales", source(**changes), Path("/nowhere"), lambda _: f"duckdb:///{file}", WEEKS[0]
    )


def refusal(file: Path, **changes: Any) -> str:
    with pytest.raises(SourceError) as caught:
        read(file, **changes)
    return str(caught.value)


@pytest.mark.parametrize("time", ["TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_NS"])
@pytest.mark.parametrize("table", ["sales", "old.sales"])
def test_a_partition_of_a_table_or_a_view_has_its_values_as_they_are(
    time: str, table: str, tmp_path: Path
):
    file = filled(tmp_path, time)
    before = file.read_bytes()
    reading = read(file, table=table)
    assert reading.frame.sort("select").rows() == [
        (FIRST, 2**53 + 1, 1.234567890123, date(2024, 1, 1), "süd", True),
        (LAST, None, None, None, None, None),
    ]
    assert reading.receipt["source"] == f"duckdb:///{file} {table}"
    assert (reading.receipt["rows"], reading.receipt["last"]) == (2, LAST.isoformat())
    assert reading.receipt == read(file, table=table).receipt
    assert file.read_bytes() == before
    found = look("sales", source(), Path("/"), lambda _: f"duckdb:///{file}", WEEKS)
    assert found.keys == ("2024-01-01", "2024-01-15")


def test_other_rows_make_another_receipt(tmp_path: Path):
    file = filled(tmp_path)
    first = read(file).receipt
    with duckdb.connect(file) as connection:
        connection.execute("UPDATE sales SET price = price + 0.000000000001 WHERE id > 3")
    assert read(file).receipt["sha256"] != first["sha256"]


def test_a_missing_table_file_or_watermark_is_named(tmp_path: Path):
    file = filled(tmp_path)
    assert "it has ['sales']. Did you mean 'sales'?" in refusal(file, table="sale")
    columns = {**source().columns, "day": "datetime"}
    said = refusal(file, watermark="day", columns=columns)
    assert "the watermark 'day' is DATE; a range needs a TIMESTAMP" in said
    absent = tmp_path / "absent.duckdb"
    assert f"names a file that is not there: {absent}" in refusal(absent)
    assert not absent.exists()
    file.write_text("a text")
    assert "not a valid DuckDB database file" in refusal(file)


@contextmanager
def held_by_another(file: Path, how: str) -> Iterator[int]:
    command = [sys.executable, "-c", HOLDING, str(file), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield holder.pid
        holder.communicate(b"\n")


def test_a_file_that_another_process_writes_is_refused_with_what_to_do(tmp_path: Path):
    file = filled(tmp_path)
    with held_by_another(file, "writes") as pid:
        said = refusal(file)
    assert "Could not set lock on file" in said and f"PID {pid}" in said
    assert "end the program that writes to this file" in said
    with held_by_another(file, "reads"):
        assert read(file).frame.height == 2


def test_where_the_package_is_missing_its_extra_is_named(tmp_path: Path):
    file = filled(tmp_path)
    program = (
        "import sys; sys.modules['duckdb'] = sys.modules['duckdb_engine'] = None\n"
        "from ml_assets.assets.raw_snapshot.readers.sql_database import open_database\n"
        "open_database('sales', 'SHOP', lambda _: f'duckdb:///{sys.argv[1]}').__enter__()"
    )
    command = [sys.executable, "-c", program, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert "SourceError: sales: the duckdb database of ML_ASSETS_SQL_SHOP needs a driver" in last
    assert "pip install 'ml_assets[duckdb]'" in last


def test_a_column_of_another_type_is_read_again(tmp_path: Path):
    file, seen = filled(tmp_path), Seen(tmp_path / "seen.db")
    types = source().columns
    for columns in (types, types | {"id": "float64"}, types | {"id": "float64"}):
        declared = source(columns=columns | {"price": "float64"})
        with duckdb.connect(file) as connection:
            connection.execute("UPDATE sales SET id = 7 WHERE id > 3")
        url = f"duckdb:///{file}"
        looked = look("sales", declared, Path("/"), lambda _, url=url: url, WEEKS, seen)
        read = receipt_of("sales", declared, Path("/"), lambda _, url=url: url, WEEKS[0])
        assert looked.receipt("2024-01-01") == read
