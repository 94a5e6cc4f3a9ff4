"""The receipt of rows that were read from a table: SQL, Delta Lake and Iceberg."""

import hashlib
from datetime import datetime
from typing import Any

import polars as pl

from ml_assets.spec.partitions import PartitionWindow


def rows_receipt(
    frame: pl.DataFrame, watermark: str | None, window: PartitionWindow | None
) -> dict[str, Any]:
    """Independent of the order in which the rows come."""
    text = frame.sort(frame.columns).write_csv(quote_style="non_numeric")
    last = frame[watermark].max() if watermark else None
    return {
        "range": range_of(window),
        "rows": frame.height,
        "last": last.isoformat() if isinstance(last, datetime) else None,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def range_of(window: PartitionWindow | None) -> list[str] | None:
    """The span of time of a partition, as text; None: the whole table."""
    return [window.start.isoformat(), window.end.isoformat()] if window else None
