"""Reads a source of any kind: take its rows, look at what it holds, or take its fingerprint."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ml_assets.assets.raw_snapshot.readers.arrived_files import Looked, look_at_files
from ml_assets.assets.raw_snapshot.readers.files import file_receipt, read_file
from ml_assets.assets.raw_snapshot.readers.lakehouse import look_at_lake, read_lake
from ml_assets.assets.raw_snapshot.readers.look_cache import Seen
from ml_assets.assets.raw_snapshot.readers.sql import SqlUrl, look_at_sql, read_sql
from ml_assets.assets.raw_snapshot.schema import Reading
from ml_assets.settings.addresses import database_place
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.paths import S3
from ml_assets.spec.sources import EventsSource, FilesSource, SourceSpec

__all__ = ["Looked", "Reading", "Seen", "look", "read_source", "receipt_of"]


def read_source(
    name: str, source: SourceSpec, root: Path, sql_url: SqlUrl, window: PartitionWindow | None
) -> Reading:
    """Read one partition, or the whole table where the source is not partitioned.

    Args:
        name: the source's name in the spec; messages begin with it.
        source: what is declared about it.
        root: folder that relative paths start from (ML_ASSETS_SOURCES).
        sql_url: connection name -> database URL.
        window: the partition; None exactly where ``source.partitioned`` is false.

    Raises:
        SourceError: it is missing, empty, or does not hold what is declared.
    """
    _check_window(source, window)
    match source.kind:
        case "sql":
            found = read_sql(name, source, sql_url, window)
        case "delta" | "iceberg":
            found = read_lake(name, source, root, window)
        case _:
            found = read_file(name, source, root, window)
    return replace(found, receipt=_from(found.receipt, source, root, sql_url))


def receipt_of(
    name: str, source: SourceSpec, root: Path, sql_url: SqlUrl, window: PartitionWindow | None
) -> dict[str, Any]:
    """The receipt that ``read_source`` would give now; files are hashed, not parsed."""
    if not isinstance(source, FilesSource | EventsSource):
        return read_source(name, source, root, sql_url, window).receipt
    _check_window(source, window)
    return _from(file_receipt(name, source, root, window), source, root, sql_url)


def _check_window(source: SourceSpec, window: PartitionWindow | None) -> None:
    if source.partitioned != (window is not None):
        raise ValueError(f"partitioned is {source.partitioned} but the window is {window}")


def origin_of(source: SourceSpec, root: Path, sql_url: SqlUrl) -> str:
    """Return where a source lies, absolute, without user and password: of a database with what
    leads its driver elsewhere, of a bucket with server and region."""
    if source.kind == "sql":
        return f"{database_place(sql_url(source.connection))} {source.table}"
    if source.kind == "iceberg":
        return f"{source.table} of the catalog {source.catalog}"
    if source.path.startswith(S3):
        from ml_assets.assets.raw_snapshot.readers.s3 import server

        return f"{source.path} at {server()}"
    return str(root / source.path)


def _from(
    receipt: dict[str, Any], source: SourceSpec, root: Path, sql_url: SqlUrl
) -> dict[str, Any]:
    """Another place is another receipt: what came from there is read again."""
    return {**receipt, "source": origin_of(source, root, sql_url)}


def look(
    name: str,
    source: SourceSpec,
    root: Path,
    sql_url: SqlUrl,
    partitions: Sequence[PartitionWindow] | None,
    seen: Seen | None = None,
    now: datetime | None = None,
) -> Looked:
    """Return what a source holds: which partitions are whole, and the receipt of each.

    Args:
        partitions: those that are asked about; None exactly where ``source.partitioned`` is false.
        seen: what earlier looks found: what nobody touched since is not read again. None: it is.
        now: of this look; default: now.

    Raises:
        SourceError: the landing folder, the bucket or the database is missing.
    """
    if source.partitioned != (partitions is not None):
        raise ValueError(f"{name}: partitioned is {source.partitioned}, asked for {partitions}")
    now = now or datetime.now(UTC)
    match source.kind:
        case "sql":
            found = look_at_sql(name, source, sql_url, partitions, seen, now)
        case "delta" | "iceberg":
            found = look_at_lake(name, source, root, partitions, seen, now)
        case _:
            found = look_at_files(name, source, root, partitions, seen, now)
    return replace(found, receipt=lambda key: _from(found.receipt(key), source, root, sql_url))
