"""Shows the rows in quarantine, since when and why, and releases those that pass now.

Rows in quarantine are audited again under the present contract, and those that pass are published.
A release is a run of the table's own asset, with author and reason; rows that still fail stay.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

import polars as pl

from ml_assets.adapters.declare_asset import AssetKey, asset_key
from ml_assets.adapters.execute import Tell, execute, mark_dead_runs, wait_for_others
from ml_assets.adapters.runs import Definitions, Selection
from ml_assets.adapters.step import Instance
from ml_assets.assets.validated_table.contract.suite import contract_of
from ml_assets.assets.validated_table.quarantine import REASON, reason_counts
from ml_assets.assets.validated_table.snapshot_audit import audit_snapshot
from ml_assets.automation.planner.landed import calendar
from ml_assets.automation.planner.plan import contiguous
from ml_assets.errors import DataRejected, MlAssetsError, StorageError, counted
from ml_assets.spec.recalls import RELEASE_REASON, RELEASED_BY, RowsReleased
from ml_assets.spec.records import StageRecord
from ml_assets.store.layout import Address, partition_of, read_records
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import MAIN, CommitId, SnapshotStore

STAGE = "validated_table"
QUARANTINE_FILE = "quarantine.parquet"
_REASONS = 3


@dataclass(frozen=True)
class Kept:
    """Holds what is kept back of one partition of a table."""

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


def kept_since(pipeline: Pipeline, begun: datetime) -> Iterator[str]:
    """A line for each table of which partitions that were published since then keep rows back."""
    kept = kept_rows(pipeline.store, pipeline.name)
    new = [one for one in kept if one.rows and one.since is not None and one.since >= begun]
    for table, group in groupby(new, key=lambda one: one.table):
        parts = list(group)
        reasons: Counter[str] = sum((Counter(one.reasons) for one in parts), Counter())
        told = ", ".join(f"{rows:,} by {check}" for check, rows in reasons.most_common(_REASONS))
        more = f" and {len(reasons) - _REASONS} more" if len(reasons) > _REASONS else ""
        where = "" if parts[0].partition is None else f" in {counted(len(parts), 'partition')}"
        yield (
            f"{sum(one.rows for one in parts):,} of {counted(sum(one.of for one in parts), 'row')}"
            f" of the table {table!r}{where} in quarantine: {told}{more}; see ml-assets data"
            f" quarantine show {pipeline.name} {table}"
        )


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
        frame = store.scan(commit, entry.path)
        rows = frame.select(pl.len()).collect().item()
        yield Kept(table, partition_of(name), rows, rows, False, _counted(frame), None)


def _counted(frame: pl.LazyFrame) -> dict[str, int]:
    return reason_counts(frame.select(REASON).collect())


@dataclass(frozen=True)
class Answer:
    """Holds what the present contract says of one partition's kept rows."""

    kept: Kept
    passes: int
    """Rows that would be published now."""
    why_not: str
    """Why the rest cannot be: the checks that they break, or what fails as a whole."""


def present_answers(pipeline: Pipeline, table: str, partition: str | None) -> tuple[Answer, ...]:
    """Audit each partition that keeps rows back again, without publishing anything.

    Raises:
        StorageError: nothing is kept back there.
    """
    kept = [one for one in kept_rows(pipeline.store, pipeline.name, table, partition) if one.rows]
    if not kept:
        where = f"{table} [{partition}]" if partition else table
        raise StorageError(
            f"No rows of {pipeline.name}/{where} are in quarantine. To list those that are:"
            f" ml-assets data quarantine show {pipeline.name}"
        )
    newest = {one.partition: one for one in kept}  # a rejected table is newer than what is beside
    newest |= {one.partition: one for one in kept if not one.published}
    return tuple(_answer(pipeline, one) for one in newest.values())


def release_rows(
    pipeline: Pipeline,
    defs: Definitions,
    instance: Instance,
    answers: Sequence[Answer],
    *,
    author: str,
    reason: str,
    tell: Tell,
) -> int:
    """Publish the partitions of which rows pass now; the rows released.

    Raises:
        DataRejected: no row passes under the present contract.
        MlAssetsError: a run failed; what was published before stays.
    """
    passing = [answer for answer in answers if answer.passes]
    if not passing:
        said = "; ".join(f"{a.kept.partition or 'all'}: {a.why_not}" for a in answers[:3])
        raise DataRejected(
            f"{counted(sum(a.kept.rows for a in answers), 'row', 'were')} audited again and none "
            f"passes ({said}). Correct the contract; or correct the source, and then: ml-assets "
            f"run {pipeline.name}"
        )
    mark_dead_runs(instance)
    key = asset_key(pipeline, STAGE, passing[0].kept.table)
    tags = {RELEASED_BY: author, RELEASE_REASON: reason}
    for selection in _selections(pipeline, key, passing):
        wait_for_others(instance, pipeline.name, tell)
        execute(defs, instance, pipeline.name, selection, tell, tags=tags)
    return sum(answer.passes for answer in passing)


def _answer(pipeline: Pipeline, kept: Kept) -> Answer:
    contract = contract_of(pipeline.folder, pipeline.spec.sources[kept.table])
    raw = Address(pipeline.name, "raw_snapshot", kept.table, kept.partition)
    try:
        found = audit_snapshot(pipeline.at(pipeline.store.resolve(MAIN)), raw, contract).found
    except MlAssetsError as error:
        return Answer(kept, 0, str(error))
    failed = [r.reason for r in found.results if r.severity == "critical" and not r.passed]
    if failed:
        return Answer(kept, 0, "; ".join(failed))
    rest = found.quarantined.height
    why = ", ".join(r.check_name for r in found.results if r.rows_failed) if rest else ""
    return Answer(kept, max(kept.rows - rest, 0), why)


def _selections(pipeline: Pipeline, key: AssetKey, answers: Sequence[Answer]) -> list[Selection]:
    partitions = [answer.kept.partition for answer in answers if answer.kept.partition]
    if not partitions:
        return [Selection((key,))]
    spans = contiguous(partitions, calendar(pipeline))
    return [Selection((key,), partitions=span) for span in spans]
