"""Sources as a spec declares them, and files as somebody delivers them."""

import gzip
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ml_assets.assets.raw_snapshot.readers.read_source import Looked, Seen, look, read_source
from ml_assets.errors import SourceError
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import EventsSource, FilesSource

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
COLUMNS = {"order": "int64", "shop": "string"}


def weeks_from(start: datetime) -> tuple[PartitionWindow, ...]:
    """Three of them, each called by its first day."""
    begins = [start + timedelta(weeks=n) for n in range(4)]
    return tuple(
        PartitionWindow(f"{begin:%Y-%m-%d}", begin, end) for begin, end in pairwise(begins)
    )


WEEKS = weeks_from(datetime(2024, 1, 1, tzinfo=UTC))
FIRST = WEEKS[0]
Source = FilesSource | EventsSource


def files(**changes: Any) -> FilesSource:
    """Weekly CSV files of orders, but for the changes."""
    fields: dict[str, Any] = {
        "kind": "files",
        "path": "orders/{partition}.csv",
        "format": "csv",
        "columns": COLUMNS,
        "key": ["order"],
        "contract": "c.json",
    }
    return FilesSource.model_validate(fields | changes)


def stream(**changes: Any) -> EventsSource:
    """A numbered stream of arrivals, but for the changes."""
    fields: dict[str, Any] = {
        "kind": "events",
        "path": "arrivals/{partition}/*.jsonl",
        "offset": "offset",
        "columns": {"order": "int64", "at": "datetime"},
        "key": ["order"],
        "contract": "c.json",
        "known_at": "at",
    }
    return EventsSource.model_validate(fields | changes)


def deliver(
    root: Path, content: Mapping[str, str | bytes], at: datetime = NOW - timedelta(hours=1)
) -> None:
    """Write files below ``root``, as old as ``at`` says; a name ending in .gz packs its text."""
    for name, text in content.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        raw = text.encode() if isinstance(text, str) else text
        packed = name.endswith(".gz") and isinstance(text, str)
        file.write_bytes(gzip.compress(raw) if packed else raw)
        os.utime(file, (at.timestamp(), at.timestamp()))


def rows(root: Path, source: Source, window: PartitionWindow | None = FIRST) -> list[Any]:
    """What reading gives, in the order of the columns."""
    return read_source("orders", source, root, no_sql, window).frame.sort(pl.all()).rows()


def refusal(root: Path, source: Source, window: PartitionWindow | None = FIRST) -> str:
    with pytest.raises(SourceError) as caught:
        read_source("orders", source, root, no_sql, window)
    return str(caught.value)


def looked(
    root: Path,
    source: Source,
    partitions: Sequence[PartitionWindow] | None = WEEKS,
    seen: Seen | None = None,
    now: datetime = NOW,
) -> Looked:
    return look("orders", source, root, no_sql, partitions, seen, now)


def no_sql(name: str) -> str:
    raise AssertionError(f"a file source asked for the database {name}")
