"""The audit of one raw snapshot: its contract, volume, placement, and columns as declared now."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl

from ml_assets.assets.raw_snapshot.schema import from_typed
from ml_assets.assets.validated_table.contract.compiled import Audit, audit
from ml_assets.assets.validated_table.contract.suite import NO_CONTRACT, Contract
from ml_assets.assets.validated_table.placement import judge_placement, placing_column
from ml_assets.assets.validated_table.quarantine import check_balance
from ml_assets.assets.validated_table.volume import (
    compared_with,
    judge_volume,
)
from ml_assets.errors import ContractError, EvidenceError, SchemaChanged, says
from ml_assets.graph.inputs import require_record
from ml_assets.spec.partitions import windows
from ml_assets.spec.recalls import RELEASE_REASON, RELEASED_BY, RowsReleased
from ml_assets.spec.records import StageRecord
from ml_assets.spec.schema_change import COLUMNS, declared_changes
from ml_assets.spec.sources import SourceSpec
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import PipelineState

STAGE = "validated_table"


RELEASES = "releases"
"""Attribute of a record: who released rows of it that were kept back."""


@dataclass(frozen=True)
class Audited:
    """A snapshot that was held to its contract, and what it was compared with."""

    record: StageRecord
    before: tuple[StageRecord, ...]
    found: Audit


def audit_snapshot(state: PipelineState, raw: Address, contract: Contract) -> Audited:
    """Hold a raw snapshot to its contract, volume and partition; nothing is written.

    Raises:
        StorageError: there is no such snapshot.
        ContractError: the contract does not fit it.
    """
    if contract is NO_CONTRACT:
        raise ContractError(_no_contract(state, raw))
    record = require_record(state, raw)
    before = records_before(state, raw)
    source = state.spec.sources[raw.source or ""]
    found = audit(as_declared_now(state.scan(raw), record, source), contract)
    volume = source.volume
    if volume:
        rows = {key: delivered_rows(one) for key, one in before.items()}
        found = found.with_result(judge_volume(record.rows or 0, rows, volume))
    time, calendar = placing_column(state.spec, raw.source or ""), state.spec.partitions
    known = windows(calendar, datetime.now(UTC)) if time else ()
    window = next((one for one in known if one.key == raw.partition), None)
    if time and window:
        found = found.with_result(judge_placement(found.incoming, time, window, calendar.timezone))
    check_balance(record.rows or 0, found.clean, found.quarantined)
    return Audited(record, tuple(before.values()), found)


def _no_contract(state: PipelineState, raw: Address) -> str:
    file = f"contracts/{raw.source}.json"
    return (
        f"The source {raw.source!r} names no contract, so none of its rows is published. Propose"
        f" one: ml-assets data contract propose {state.name} {raw.source} --out"
        f" {state.pipeline.folder / file}, and write contract: {file} at the source in defs.yaml."
    )


def as_declared_now(rows: pl.LazyFrame, raw: StageRecord, source: SourceSpec) -> pl.LazyFrame:
    """The rows of a snapshot that was read when its source was declared otherwise.

    It stays as it was read where its source has it no more; its table has the types of now.

    Raises:
        SchemaChanged: a column is not there, or a value of it cannot have its type of now.
    """
    was = raw.attributes.get(COLUMNS, source.columns)
    if not declared_changes(was, source.columns):
        return rows
    where = f"{raw.key} [{raw.partition}]" if raw.partition else raw.key
    new = [name for name in source.columns if name not in was]
    if new:
        raise SchemaChanged(
            f"{where} was read before its source declared the column"
            f" {', '.join(map(repr, new))}, and its source no longer has this partition. Deliver"
            " the partition again, or set partitions.start after it.",
            {"removed": new},
        )
    frame = rows.collect()
    own = [name for name in frame.columns if name not in was]  # such as an event's place
    return from_typed(frame, source.columns, where).hstack(frame.select(own)).lazy()


def records_before(state: PipelineState, raw: Address) -> dict[str, StageRecord]:
    """The published tables that the volume of one is held to: partition -> record, newest first.

    What was refused is no measure: else a drop that stays would be refused once, and then pass.
    """
    table = Address(state.name, STAGE, raw.source)
    volume = state.spec.sources[raw.source or ""].volume
    if volume is None or raw.partition is None:
        return {}
    calendar = [window.key for window in windows(state.spec.partitions, datetime.now(UTC))]
    published = [key for key in calendar if state.exists(table.at(key).record)]
    keys = compared_with(raw.partition, published, calendar, volume)
    found = {key: state.record(table.at(key)) for key in keys}
    return {key: record for key, record in found.items() if record is not None}


def delivered_rows(table: StageRecord) -> int:
    """The rows that a published table was made from, those in its quarantine too: like for like."""
    return (table.rows or 0) + int(table.attributes.get("quarantined", 0))


def releases(
    state: PipelineState,
    address: Address,
    tags: Mapping[str, str],
    run: str,
    found: Audit,
) -> tuple[RowsReleased, ...]:
    """Return who released rows of this partition, ever; this run too where a person asked for it.

    Raises:
        EvidenceError: the run's tags say who released them or why, and not both.
    """
    record = state.record(address)
    told = record.attributes.get(RELEASES, []) if record else []
    earlier = tuple(RowsReleased.model_validate(one) for one in told)
    said = {tag: tags.get(tag, "").strip() for tag in (RELEASED_BY, RELEASE_REASON)}
    if not {*said} & {*tags}:
        return earlier
    if not all(map(says, said.values())):
        missing = next(tag for tag, value in said.items() if not says(value))
        raise EvidenceError(
            f"{address}: releasing rows needs an author and a reason; the run has no tag "
            f"{missing}. Use ml-assets data quarantine release {address.pipeline} "
            f"{address.source} --author NAME --reason WHY."
        )
    kept = int(record.attributes.get("quarantined", 0)) if record else 0
    if state.exists(address.rejected):
        kept = state.store.scan(state.commit, address.rejected).select(pl.len()).collect().item()
    now = RowsReleased(
        author=said[RELEASED_BY],
        reason=said[RELEASE_REASON],
        rows=kept - found.quarantined.height,
        run=run,
        time=datetime.now(UTC),
    )
    return (*earlier, now)
