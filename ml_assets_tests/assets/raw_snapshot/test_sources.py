"""What is wrong with a feed is told to people outside without one value of it."""

import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from ml_assets.assets.raw_snapshot.readers.csv_format import parse_csv
from ml_assets.assets.raw_snapshot.readers.json_lines_format import parse_lines
from ml_assets.assets.raw_snapshot.readers.parquet_format import parse_parquet
from ml_assets.assets.raw_snapshot.readers.read_source import read_source
from ml_assets.assets.raw_snapshot.schema import Columns
from ml_assets.errors import SourceError, outside
from ml_assets.spec.sources import SqlSource

JANE = "jane.quux@example.org"
DECLARED: Columns = {
    "id": "int64",
    "x": "float64",
    "on": "boolean",
    "day": "date",
    "at": "datetime",
}
SOUND = {"id": 1, "x": 1.5, "on": True, "day": "2024-01-01", "at": "2024-01-01T00:00:00Z"}
CSV = "id,x,on,day,at\n1,1.5,true,2024-01-01,2024-01-01T00:00:00Z\n"


def of_csv() -> Iterator[bytes]:
    """Jane in each cell and each name, in a field too many, in a quote that never ends, cut off."""
    cells = [line.split(",") for line in CSV.splitlines()]
    for row, column in ((row, column) for row in (0, 1) for column in range(5)):
        spoiled = [list(line) for line in cells]
        spoiled[row][column] = JANE
        yield "\n".join(map(",".join, spoiled)).encode()
    yield f"{CSV}2,{JANE},{JANE},,,,{JANE}\n".encode()
    yield f'{CSV}2,"{JANE}\n'.encode()
    yield f'"{JANE}'.encode()
    yield f"{JANE},{JANE}\n".encode()
    yield f"{CSV}{JANE}\xe9".encode("latin-1")


def of_lines() -> Iterator[bytes]:
    """Jane as each value and each key, as a line, a list, a key that is there twice, cut off."""
    for name in DECLARED:
        yield json.dumps({**SOUND, name: JANE}).encode()
        yield json.dumps({**SOUND, name: {JANE: [JANE]}}).encode()
        yield json.dumps({JANE if key == name else key: SOUND[key] for key in SOUND}).encode()
    yield json.dumps(JANE).encode()
    yield json.dumps([JANE]).encode()
    yield f'{{"{JANE}": 1, "{JANE}": 2}}'.encode()
    whole = json.dumps({"id": JANE, "x": 1}).encode()
    yield from (whole[:end] for end in range(1, len(whole)))
    yield f"{JANE}\xe9".encode("latin-1")


def of_parquet() -> Iterator[bytes]:
    """Jane as a value of each column and as the name of each."""
    frame = pl.DataFrame({name: [SOUND[name]] for name in DECLARED})
    for name in DECLARED:
        for spoiled in (
            frame.with_columns(pl.lit(JANE).alias(name)),
            frame.with_columns(pl.lit(JANE, pl.Categorical).alias(name)),
            frame.with_columns(pl.lit(JANE, pl.Enum([JANE])).alias(name)),
            frame.rename({name: JANE}),
        ):
            buffer = io.BytesIO()
            spoiled.write_parquet(buffer)
            yield buffer.getvalue()


@pytest.mark.parametrize(
    ("parse", "feeds"),
    [
        (lambda content: parse_csv(content, DECLARED, ("",), "the file"), of_csv()),
        (lambda content: parse_lines(content, DECLARED, "the file"), of_lines()),
        (lambda content: parse_parquet(content, DECLARED, "the file"), of_parquet()),
    ],
    ids=["csv", "events", "parquet"],
)
def test_a_refused_feed_names_nobody_outside(
    parse: Callable[[bytes], pl.DataFrame], feeds: Iterator[bytes]
):
    told: list[str] = []
    for content in feeds:
        with pytest.raises(SourceError) as caught:
            parse(content)
        told.append(str(caught.value))
        shown = outside(told[-1])
        assert not any(part in shown for part in ("jan", "quu", "exam")), shown
        assert "the file" in shown, "where it lies is told"
    assert sum("jane" in text for text in told) >= len(DECLARED), "inside it is all there"


def test_a_refused_table_of_a_database_names_nobody_outside(tmp_path: Path):
    """Jane is the key of the row, and what it holds."""
    place = tmp_path / "clinic.db"
    with closing(sqlite3.connect(place)) as clinic, clinic:
        clinic.execute("CREATE TABLE patients (email TEXT, dose FLOAT)")
        clinic.execute("INSERT INTO patients VALUES (?, ?)", (JANE, JANE))
    fields = {"columns": {"email": "string", "dose": "float64"}, "key": ["email"]}
    source = SqlSource(
        kind="sql", connection="CLINIC", table="patients", partitioned=False, **fields
    )
    with pytest.raises(SourceError) as caught:
        read_source("patients", source, tmp_path, lambda _: f"sqlite:///{place}", None)
    assert "jane" in str(caught.value), "inside it is all there"
    shown = outside(str(caught.value))
    assert not any(part in shown for part in ("jan", "quu", "exam")), shown
    assert "table patients" in shown, "where it lies is told"
