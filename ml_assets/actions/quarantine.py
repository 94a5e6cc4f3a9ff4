"""The quarantine: which rows are kept back, since when, for which reasons, and who let go."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from ml_assets.assets.validated_table.quarantine import REASON, reason_counts
from ml_assets.spec.records import StageRecord
from ml_assets.spec.rows_released import RowsReleased
from ml_assets.store.layout import Address, read_records
from ml_assets.store.snapshots import MAIN, CommitId, SnapshotStore

STAGE = "validated_table"
QUARANTINE_FILE = "quarantine.parquet"


@dataclass(frozen=True)
class Kept:
    """What is kept back of one partition of a table."""

    table: str
    """The source that the table is of."""
    partition: str | None
    rows: int
    of: int
    """Rows that came in."""
    published: bool
    """False: the table failed as a whole, nothing of it was published."""
    reasons: dict[str, int]
    """Check -> rows, most first."""
    since: datetime | None
    """When the table beside it was published; None: it was not."""
    released: tuple[RowsReleased, ...] = ()
    """Releases of this partition so far, oldest first."""

    @property
    def share(self) -> float:
        return self.rows / self.of if self.of else 0.0


def kept_rows(
    store: SnapshotStore, pipeline: str, table: str | None = None, partition: str | None = None
) -> tuple[Kept, ...]:
    """Every partition that keeps rows back or had some released, by table and partition.

    Raises:
        StorageError: a record cannot be read.
    """
    commit = store.resolve(MAIN)
    found = [*_beside(store, commit, pipeline), *_rejected(store, commit, pipeline)]
    chosen = [
        kept
        for kept in found
        if table in (None, kept.table) and partition in (None, kept.partition)
    ]
    return tuple(sorted(chosen, key=lambda one: (one.table, one.partition or "", one.published)))


def _beside(store: SnapshotStore, commit: CommitId, pipeline: str) -> Iterator[Kept]:
    """Rows beside a table that was published without them."""
    for record in read_records(store, commit, pipeline, STAGE):
        told = record.attributes.get("releases", ())
        released = tuple(RowsReleased.model_validate(one) for one in told)
        rows = int(record.attributes.get("quarantined", 0))
        if rows or released:
            table = record.key.split("/")[2]
            reasons = _reasons(store, commit, record) if rows else {}
            of = rows + (record.rows or 0)
            yield Kept(table, record.partition, rows, of, True, reasons, record.time, released)


def _reasons(store: SnapshotStore, commit: CommitId, record: StageRecord) -> dict[str, int]:
    told = record.attributes.get("reasons")
    if told is not None:
        return {str(check): int(rows) for check, rows in told.items()}
    path = Address.of(record.key, record.partition).file(QUARANTINE_FILE)  # of before: no counts
    return _counted(store.scan(commit, path))


def _rejected(store: SnapshotStore, commit: CommitId, pipeline: str) -> Iterator[Kept]:
    """Tables of which nothing was published."""
    for entry in store.list(commit, f"quarantine/{pipeline}/{STAGE}/"):
        table, name = entry.path.split("/")[3:]
        stem = name.removesuffix(".parquet")
        frame = store.scan(commit, entry.path)
        rows = frame.select(pl.len()).collect().item()
        partition = None if stem == "all" else stem
        yield Kept(table, partition, rows, rows, False, _counted(frame), None)


def _counted(frame: pl.LazyFrame) -> dict[str, int]:
    return reason_counts(frame.select(REASON).collect())
