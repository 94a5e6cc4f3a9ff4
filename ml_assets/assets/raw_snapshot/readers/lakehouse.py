"""Reads lakehouse tables, Delta Lake and Iceberg, at one version, which the receipt names.

Files without any row of a partition, by the table's own statistics, are not opened.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from ml_assets.assets.raw_snapshot.readers.look import Key, Looked
from ml_assets.assets.raw_snapshot.readers.parquet import frame_of
from ml_assets.assets.raw_snapshot.readers.round_robin import look_in_turn
from ml_assets.assets.raw_snapshot.readers.rows_read import range_of, rows_receipt
from ml_assets.assets.raw_snapshot.readers.seen import Seen
from ml_assets.assets.raw_snapshot.schema import Reading, check_names, from_typed
from ml_assets.errors import SourceError, counted
from ml_assets.spec.canonical import digest_of
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import LakeSource

if TYPE_CHECKING:
    import pyarrow as pa


class LakeTable(Protocol):
    """A table at one of its versions."""

    @property
    def version(self) -> int: ...
    @property
    def columns(self) -> list[str]: ...

    def files(self, window: PartitionWindow | None) -> list[str]:
        """The files that may hold rows of the window; what is deleted from them is named, too."""
        ...

    def count(self, window: PartitionWindow | None) -> int: ...

    def count_unplaced(self) -> int:
        """Rows without a watermark."""
        ...

    def rows(self, window: PartitionWindow | None) -> "pa.Table":
        """The declared columns of the rows of the window."""
        ...


def read_lake(name: str, source: LakeSource, root: Path, window: PartitionWindow | None) -> Reading:
    """Read the rows whose watermark lies in ``[window.start, window.end)``, or the whole table.

    Raises:
        SourceError: the table cannot be read, or does not hold what is declared.
    """
    if source.partitioned != (window is not None):
        raise ValueError(f"partitioned is {source.partitioned} but the window is {window}")
    table, where = _open(name, source, root)
    title = f"{where} [{window.key}]" if window else where
    rows = table.rows(window)
    if not rows.num_rows:
        raise SourceError(
            f"{title} has no rows. A partition or table without rows is taken for a fault at its"
            " origin, not for data: load it, or ask for a partition that is there."
        )
    frame = from_typed(frame_of(rows), source.columns, title)
    return Reading(frame, _receipt(table, source, frame, window))


def look_at_lake(
    name: str,
    source: LakeSource,
    root: Path,
    partitions: Sequence[PartitionWindow] | None,
    seen: Seen | None,
    now: datetime,
) -> Looked:
    """Ask the table which files hold each partition; rows are read where these changed.

    Raises:
        SourceError: the table cannot be read, or has other columns than declared.
    """
    windows = [None] if partitions is None else partitions
    spans = {window.key if window else None: window for window in windows}
    table, where = _open(name, source, root)

    def read(key: Key) -> dict[str, Any]:
        return read_lake(name, source, root, spans[key]).receipt

    def stamp_of(key: Key) -> str | None:
        files = table.files(spans[key])
        if key is not None and not (files and table.count(spans[key])):
            return None
        return digest_of([*sorted(files)])

    if seen is None:
        return Looked(tuple(key for key in spans if stamp_of(key)), {}, read)
    columns = sorted(source.columns)
    places = {key: f"{where} {range_of(span)} {columns}" for key, span in spans.items()}
    return look_in_turn(places, stamp_of, read, seen, now)


def _open(name: str, source: LakeSource, root: Path) -> tuple[LakeTable, str]:
    """The table with the declared columns, every row of some partition; and how it is called."""
    if source.kind == "delta":
        from ml_assets.assets.raw_snapshot.readers.delta import DeltaLake

        table = DeltaLake(name, source, root)
        where = f"{name}: Delta table {source.path}"
    else:
        from ml_assets.assets.raw_snapshot.readers.iceberg import Iceberg

        table = Iceberg(name, source)
        where = f"{name}: Iceberg table {source.table} of {source.catalog}"
    check_names(table.columns, source.columns, where)
    lost = 0
    if source.partitioned and not source.ignore_null_watermark:
        lost = table.count_unplaced()
    if lost:
        raise SourceError(
            f"{where}: {counted(lost, 'row')} without {source.watermark!r}: of no partition, never"
            " read. Fill the column in; or, to leave such rows out, set ignore_null_watermark:"
            " true for this source in defs.yaml."
        )
    return table, where


def _receipt(
    table: LakeTable, source: LakeSource, frame: pl.DataFrame, window: PartitionWindow | None
) -> dict[str, Any]:
    rows = rows_receipt(frame, source.watermark, window)
    return {"kind": source.kind, **rows, "version": table.version}
