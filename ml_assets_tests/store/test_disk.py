"""A disk that is full is said to be so, whichever library met it."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from ml_assets.errors import DiskRefuses
from ml_assets.store.disk import refusal
from ml_assets.store.table_files import write_table

FULL = Path("/dev/full")
ROWS = pl.DataFrame({"k": range(1000)})


@pytest.mark.skipif(not FULL.exists(), reason="this machine has no full device")
@pytest.mark.parametrize("write", [ROWS.write_parquet, ROWS.lazy().sink_parquet])
def test_a_disk_that_fills_while_polars_writes_is_full(
    tmp_path: Path, write: Callable[[Path], object]
) -> None:
    with pytest.raises(pl.exceptions.ComputeError) as raised:
        write(FULL)
    told = refusal(raised.value, tmp_path)
    assert isinstance(told, DiskRefuses)
    assert str(told).startswith(f"The disk is full: {tmp_path} ")


def test_a_folder_that_polars_may_not_write_is_named(tmp_path: Path) -> None:
    said = f"Permission denied (os error 13): {tmp_path / 'data.parquet'}"
    told = refusal(PermissionError(said))
    assert f" may not use {tmp_path / 'data.parquet'}: Permission denied" in str(told)


def test_a_database_that_was_read_only_for_a_moment_is_told_in_a_sentence(tmp_path: Path) -> None:
    place = tmp_path / "events.db"
    writing = "insert into rows values (1)"
    with closing(sqlite3.connect(place)) as made:
        made.execute("create table rows (number int)")
    held = create_engine(f"sqlite:///file:{place}?mode=ro&uri=true")
    with held.connect() as reader, pytest.raises(OperationalError) as raised:
        reader.execute(text(writing))
    told = refusal(raised.value, tmp_path)
    assert str(told).startswith(f"A database in {tmp_path} could not be written. A file of it")
    assert refusal(sqlite3.OperationalError("no such table: rows"), tmp_path) is None


def test_a_file_that_is_not_there_is_no_refusal_of_a_disk(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        write_table(ROWS, tmp_path / "none" / "data.parquet", ["k"])
    assert refusal(raised.value) is None
    assert refusal(ValueError("No space left on device (os error 28)")) is None
    assert refusal(OSError("No space left on device (os error 28)")) is not None
