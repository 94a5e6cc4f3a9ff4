"""A database of DuckDB in a folder of its own, with a bound of memory and a place to spill."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import duckdb
import narwhals as nw
import polars as pl
import pyarrow as pa

from ml_assets.assets.feature_set.portable import Frame

_GIVE_BACK = "1MiB"
"""What DuckDB frees it gives back to the machine from this much on; else it keeps 128 MiB."""
_BATCH = 5_000
"""Rows that are in memory together, of what is read in its order and of a file that is written."""
GROUP = 4_096
"""Rows of a group in the file of a function's rows, which is read a group at a time."""


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str], of: str = "") -> str:
    """Columns as SQL takes them, each of a table where one is given (``r.``)."""
    return ", ".join(of + quoted(name) for name in names)


class Database:
    """Tables that are made while a feature function runs; they are gone with it."""

    def __init__(self, folder: Path, memory: int, threads: int) -> None:
        self._folder, self._count = folder, 0
        self._kept: dict[object, str] = {}
        self._connection = duckdb.connect(
            folder / "features.duckdb",
            config={
                "memory_limit": f"{memory}B",
                "threads": threads,
                "temp_directory": str(folder / "spilled"),
                "preserve_insertion_order": False,
                "allocator_flush_threshold": _GIVE_BACK,
                "allocator_bulk_deallocation_flush_threshold": _GIVE_BACK,
            },
        )
        self._connection.execute("SET TimeZone = 'UTC'")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def take(self, table: pl.LazyFrame) -> Frame:
        """A table of polars: it streams into a file, and is read from there."""
        file = self._folder / f"{self._name()}.parquet"
        table.sink_parquet(file, compression="lz4", row_group_size=_BATCH)
        return nw.from_native(self._connection.read_parquet(str(file)))

    def query(self, sql: str) -> Frame:
        """A query that runs when its rows are asked for."""
        return nw.from_native(self._connection.sql(sql))

    def table(self, sql: str) -> str:
        """The name of a table with the rows of a query, which runs once."""
        if sql not in self._kept:
            name = self._name()
            self._connection.execute(f"CREATE TABLE {name} AS {sql}")
            self._kept[sql] = name
        return self._kept[sql]

    def newest(self, sql: str, of: Sequence[str], by: Sequence[str], sums: Sequence[str]) -> str:
        """The name of a table with the last row for each value of ``of``, in the order of ``by``.

        Args:
            sums: columns whose running totals stand in their place, from group to group of ``of``
                without its last column. They are added up in order, as polars does it in memory.
        """
        key = (sql, *of, *by, *sums)
        if key not in self._kept:
            order = ", ".join(f"{quoted(name)} NULLS FIRST" for name in (*of, *by))
            read = self._connection.sql(f"{sql} ORDER BY {order}").to_arrow_reader(_BATCH)
            name, totals = self._name(), [pl.col(one).cum_sum() for one in sums]
            if len(of) > 1:
                totals = [one.over(of[:-1]) for one in totals]
            writing = self._connection.cursor()
            writing.register("__batches", _last_of_ties(read, list(of), totals))
            writing.execute(f"CREATE TABLE {name} AS FROM __batches")
            writing.close()
            self._kept[key] = name
        return self._kept[key]

    def write(self, sql: str, key: Sequence[str], file: Path) -> None:
        """Write the rows of a query as a Parquet file, sorted by their key."""
        order = ", ".join(f"{quoted(name)} NULLS FIRST" for name in key)
        self._connection.execute("SET preserve_insertion_order = true")
        where = str(file).replace("'", "''")
        self._connection.execute(
            f"COPY ({sql} ORDER BY {order}) TO '{where}'"
            f" (FORMAT parquet, COMPRESSION lz4_raw, ROW_GROUP_SIZE {GROUP})"
        )

    def _name(self) -> str:
        self._count += 1
        return f"t{self._count}"


def _last_of_ties(
    read: pa.RecordBatchReader, of: list[str], totals: Sequence[pl.Expr]
) -> pa.RecordBatchReader:
    """Batch by batch; the last row of one goes on into the next."""
    at = pl.struct(of)

    def parts() -> Any:
        carried: pl.DataFrame | None = None
        for batch in read:
            new = pl.DataFrame(batch)
            rows = (new if carried is None else pl.concat([carried, new])).with_columns(totals)
            yield rows.filter(at.ne_missing(at.shift(-1)))[:-1]
            carried = rows[-1:]
        if carried is not None:
            yield carried

    schema = pl.DataFrame(read.schema.empty_table()).to_arrow().schema
    batches = (batch for part in parts() for batch in part.to_arrow().to_batches())
    return pa.RecordBatchReader.from_batches(schema, batches)
