"""The door of this room: read a source, fingerprint it, or ask which partitions have landed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ml_assets.sources.files import file_receipt, has_file, read_file
from ml_assets.sources.schema import Reading
from ml_assets.sources.sql import have_rows, read_sql, sql_receipt
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import SourceSpec

__all__ = ["Reading", "available", "read_source", "receipt_of"]

SqlUrl = Callable[[str], str]


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
    if source.kind == "sql":
        return read_sql(name, source, sql_url, window)
    return read_file(name, source, root, window)


def receipt_of(
    name: str, source: SourceSpec, root: Path, sql_url: SqlUrl, window: PartitionWindow | None
) -> dict[str, Any]:
    """The receipt that ``read_source`` would give now; files are hashed, not parsed."""
    if source.kind == "sql":
        return sql_receipt(name, source, sql_url, window)
    return file_receipt(name, source, root, window)


def available(
    name: str,
    source: SourceSpec,
    root: Path,
    sql_url: SqlUrl,
    partitions: Sequence[PartitionWindow],
) -> tuple[str, ...]:
    """Keys of those ``partitions`` that have landed, in their order.

    Raises:
        SourceError: the landing folder or the database is missing.
        ValueError: the source is not partitioned.
    """
    if not source.partitioned:
        raise ValueError(f"{name} is not partitioned: it is read whole")
    if source.kind == "sql":
        return have_rows(name, source, sql_url, partitions)
    return tuple(w.key for w in partitions if has_file(name, source, root, w))
