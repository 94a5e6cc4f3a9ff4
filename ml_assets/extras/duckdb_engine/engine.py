"""A feature function run by DuckDB, in a bound of memory: what does not fit lies on disk.

It gets lazy frames of narwhals over tables of a database that lives as long as the call.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import duckdb
import narwhals as nw
import polars as pl
from polars.io.plugins import register_io_source

from ml_assets.assets.feature_set.portable import ENGINE, portable_of
from ml_assets.errors import SpecError
from ml_assets.extras.duckdb_engine.database import GROUP, Database
from ml_assets.extras.duckdb_engine.history import DuckDBHistory
from ml_assets.settings.cluster import bytes_of
from ml_assets.spec.features import EngineSpec, FeaturesSpec
from ml_assets.spec.window import Window
from ml_assets.store.disk import scratch_in

_ROWS = "rows.parquet"
_SLICE = 256
"""Rows of a group that polars is handed at a time: it takes a dozen ahead for each of its threads,
whatever their size."""
_OF_A_THREAD = 128 << 20
"""Bytes of the bound for each thread: with less, threads wait for each other's memory."""


class OnDuckDB:
    """A portable feature function that DuckDB runs: tables of polars in, rows of a file out."""

    writes_a_file = True

    def __init__(
        self,
        build: Callable[..., pl.LazyFrame],
        spec: FeaturesSpec,
        engine: EngineSpec,
        scratch: Path,
    ) -> None:
        portable = portable_of(build)
        if portable is None:
            raise SpecError(
                f"features.engine needs a function that is written with narwhals, but"
                f" {spec.function} is written for polars only. Rewrite it, and decorate it with"
                " portable of ml_assets.assets.feature_set.portable; or remove features.engine."
            )
        self._build, self._spec, self._engine = portable, spec, engine
        self._scratch, self._memory = scratch, bytes_of(engine.memory) or 0

    def __call__(self, tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
        """The rows of a window, sorted by their key: of a file that is gone with the last of them.

        Raises:
            SpecError: the bound is too small for one of the steps, or the function asks for what
                DuckDB cannot do.
        """
        where = scratch_in(self._scratch)
        made = tempfile.TemporaryDirectory(prefix="features-", dir=where)
        with tempfile.TemporaryDirectory(prefix="database-", dir=where) as folder:
            try:
                self._write(tables, window, Path(folder), Path(made.name) / _ROWS)
            except duckdb.OutOfMemoryException as error:
                raise SpecError(
                    f"features.engine.memory {self._engine.memory} is too little for"
                    f" {self._spec.function}: {str(error).splitlines()[0]}. Raise it."
                ) from error
            except NotImplementedError as error:
                raise SpecError(
                    f"{self._spec.function} uses an operation that DuckDB does not have. Write it"
                    f" in another way, or remove features.engine: {str(error).splitlines()[0]}"
                ) from error
            except (duckdb.DataError, duckdb.ProgrammingError) as error:
                raise SpecError(
                    f"DuckDB cannot run {self._spec.function}: {str(error).splitlines()[0]}. Write"
                    " it in another way, or remove features.engine."
                ) from error
        return _rows_in(made)

    def _write(
        self, tables: Mapping[str, pl.LazyFrame], window: Window, folder: Path, made: Path
    ) -> None:
        threads = max(1, min(self._memory // _OF_A_THREAD, os.cpu_count() or 1))
        with Database(folder, self._memory, threads) as database:
            frames = {name: database.take(table) for name, table in tables.items()}
            running = ENGINE.set(DuckDBHistory(database))
            try:
                rows = nw.to_native(self._build(frames, window))
            finally:
                ENGINE.reset(running)
            if not isinstance(rows, duckdb.DuckDBPyRelation):
                raise SpecError(
                    f"{self._spec.function} must return a lazy frame of the engine, but it returned"
                    " rows in memory. Do not call collect in it; or remove features.engine."
                )
            database.write(rows.sql_query(), self._spec.key, made)


def _rows_in(folder: "tempfile.TemporaryDirectory[str]") -> pl.LazyFrame:
    """The rows of a folder's file; the folder is there as long as a plan reads it."""

    def scanned() -> pl.LazyFrame:
        return pl.scan_parquet(Path(folder.name) / _ROWS, glob=False)

    count: int = scanned().select(pl.len()).collect().item()

    def groups(
        columns: list[str] | None, predicate: pl.Expr | None, most: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        end = count if most is None else min(count, most)
        for at in range(0, max(end, 1), GROUP):  # one by one: a scan reads many of them ahead
            rows = scanned().slice(at, min(GROUP, end - at))
            if predicate is not None:
                rows = rows.filter(predicate)
            group = (rows if columns is None else rows.select(columns)).collect()
            yield from group.iter_slices(_SLICE) if len(group) else [group]

    return register_io_source(groups, schema=scanned().collect_schema())
