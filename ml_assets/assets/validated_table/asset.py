"""validated_table: write, audit, publish - only rows that meet the contract get through."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import polars as pl

from ml_assets.adapters.check_outcome import CheckOutcome
from ml_assets.adapters.declared import asset_key, source_partitions, stage_asset
from ml_assets.adapters.metadata import carded_table, history, numbers
from ml_assets.adapters.partitioned import Events, Made, make_partitions
from ml_assets.adapters.stores import StoresResource
from ml_assets.assets.raw_snapshot.schema import from_typed
from ml_assets.assets.validated_table.audits import audit_outcome
from ml_assets.assets.validated_table.contract.compiled import Audit, audit
from ml_assets.assets.validated_table.contract.results import ExpectationResult
from ml_assets.assets.validated_table.contract.suite import Contract, load_contract
from ml_assets.assets.validated_table.quarantine import check_balance, reason_counts
from ml_assets.assets.validated_table.volume import (
    CHECK_NAME,
    compared_with,
    judge_volume,
    volume_words,
)
from ml_assets.errors import DataRejected, EvidenceError, SchemaChanged
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.data_card import card_of
from ml_assets.graph.inputs import require_record
from ml_assets.graph.publish import Draft, Work, input_version
from ml_assets.reports.data import contract_pictures
from ml_assets.spec.partitions import windows
from ml_assets.spec.records import RELEASE_REASON, RELEASED_BY, RowsReleased, StageRecord
from ml_assets.spec.schema_change import COLUMNS, declared_changes
from ml_assets.spec.sources import SourceSpec
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState

STAGE = "validated_table"
QUARANTINE_FILE = "quarantine.parquet"
RELEASES = "releases"
"""Attribute of a record: who released rows of it that were kept back."""


def validated_table(declared: Pipeline, source_name: str) -> dg.AssetsDefinition:
    """The validated_table asset of one source, with one check for each expectation."""
    source = declared.spec.sources[source_name]
    contract = load_contract(declared.folder / source.contract)
    code_version = code_version_of(declared, STAGE, source_name)
    key = asset_key(declared, STAGE, source_name)

    @stage_asset(
        declared,
        STAGE,
        source_name,
        description=f"The rows of `{source_name}` that meet the contract `{contract.name}`; the"
        " others are in quarantine, each with its reason.",
        kinds={"polars", "greatexpectations"},
        deps=[asset_key(declared, "raw_snapshot", source_name)],
        partitions_def=source_partitions(declared, source),
        check_specs=[
            dg.AssetCheckSpec(
                e.check_name,
                asset=key,
                blocking=e.severity == "critical",
                description=f"{e.type} {dict(e.kwargs)} ({e.severity})",
            )
            for e in contract.expectations
        ]
        + _volume_check(key, source),
    )
    def materialize(context: dg.AssetExecutionContext, stores: StoresResource) -> Events:
        pipeline = stores.open(declared)

        def make(address: Address) -> Made:
            begun = datetime.now(UTC)
            base = pipeline.store.resolve("main")
            raw = Address(pipeline.name, "raw_snapshot", source_name, address.partition)
            audited = audit_snapshot(pipeline.at(base), raw, contract)
            seen = tuple(input_version(one, base) for one in audited.before)
            inputs, found = (input_version(audited.record, base),), audited.found
            work = Work(address, code_version, inputs, context.run_id, seen=seen, begun=begun)
            released = releases(pipeline.at(base), address, context.run.tags, context.run_id, found)
            return publish_audited(pipeline.at(base), work, found, source, released)

        whole = Address(pipeline.name, STAGE, source_name)
        yield from make_partitions(
            context, whole, make, lambda: history(pipeline.store, whole, contract_pictures)
        )

    return materialize


@dataclass(frozen=True)
class Audited:
    """A snapshot that was held to its contract, and what it was compared with."""

    record: StageRecord
    before: tuple[StageRecord, ...]
    found: Audit


def audit_snapshot(state: PipelineState, raw: Address, contract: Contract) -> Audited:
    """Hold a raw snapshot to its contract and volume; nothing is written.

    Raises:
        StorageError: there is no such snapshot.
        ContractError: the contract does not fit it.
    """
    record = require_record(state, raw)
    before = records_before(state, raw)
    source = state.spec.sources[raw.source or ""]
    found = audit(as_declared_now(state.scan(raw), record, source), contract)
    volume = source.volume
    if volume:
        rows = {key: delivered_rows(one) for key, one in before.items()}
        found = found.with_result(judge_volume(record.rows or 0, rows, volume))
    check_balance(record.rows or 0, found.clean, found.quarantined)
    return Audited(record, tuple(before.values()), found)


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
            f"{where} was read when its source declared no column {', '.join(map(repr, new))}, and"
            " is not read again: its source has it no more. Deliver it again, or begin after it"
            " (partitions.start).",
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
    """Who released rows of this partition, ever; this run too where a person asked for it.

    Raises:
        EvidenceError: the run's tags say who released them or why, and not both.
    """
    record = state.record(address)
    told = record.attributes.get(RELEASES, []) if record else []
    earlier = tuple(RowsReleased.model_validate(one) for one in told)
    said = {tag: tags.get(tag, "").strip() for tag in (RELEASED_BY, RELEASE_REASON)}
    if not {*said} & {*tags}:
        return earlier
    if not all(said.values()):
        missing = next(tag for tag, value in said.items() if not value)
        raise EvidenceError(
            f"{address}: rows are released by somebody, for a reason; the run has no tag {missing}."
            f" Ask for it by ml-assets data quarantine release {address.pipeline} {address.source}"
            " --author NAME --reason WHY."
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


def publish_audited(
    state: PipelineState,
    work: Work,
    found: Audit,
    source: SourceSpec,
    released: tuple[RowsReleased, ...] = (),
) -> Made:
    """Publish what may be published of an audited table, keep the rest in quarantine."""
    checks = tuple(_check(result) for result in found.results)
    if not found.passed:
        kept = _keep(state, work.address, found.quarantined, source.key)
        return Made(None, {}, checks, _rejected(work.address, found, kept))
    with Draft(state.pipeline, work, state.commit) as draft:
        draft.table(found.clean, source.key)
        draft.card(found.clean, source.key)
        draft.extra_table(QUARANTINE_FILE, found.quarantined, source.key)
        draft.remove(work.address.rejected)  # of an earlier try: its rows are in this one
        published = draft.publish(
            attributes={**_attributes(found, released), COLUMNS: dict(source.columns)}
        )
    metadata = carded_table(state.pipeline, published, work.address)
    if source.known_at and len(found.clean):
        metadata["known_until"] = str(found.clean[source.known_at].max())
    reasons = reason_counts(found.quarantined)
    if reasons:
        listed = (f"{check}: {rows:,}" for check, rows in reasons.items())
        metadata["quarantine_reasons"] = "; ".join(listed)
    card = card_of(work.address, draft.statistics)
    return Made(published, {**metadata, **numbers(_row_numbers(found))}, checks, card=card)


def _attributes(found: Audit, released: tuple[RowsReleased, ...]) -> dict[str, Any]:
    told = {RELEASES: [one.model_dump(mode="json") for one in released]} if released else {}
    return {
        "quarantined": len(found.quarantined),
        "reasons": reason_counts(found.quarantined),
        "warned": found.warned,
        "warnings": [r.reason for r in found.results if not r.passed],
        "audit": audit_outcome(found).model_dump(mode="json"),
        **told,
    }


def _row_numbers(found: Audit) -> dict[str, float]:
    """What the page of the asset plots over its partitions."""
    rows_in = len(found.clean) + len(found.quarantined)
    return {
        "rows_in": rows_in,
        "quarantined": len(found.quarantined),
        "quarantined_share": len(found.quarantined) / rows_in if rows_in else 0.0,
        "warned": found.warned,
    }


def _volume_check(key: dg.AssetKey, source: SourceSpec) -> list[dg.AssetCheckSpec]:
    if source.volume is None:
        return []
    blocking = source.volume.severity == "critical"
    words = f"Rows within {source.volume.within:.0%} of {volume_words(source.volume)}"
    return [dg.AssetCheckSpec(CHECK_NAME, asset=key, blocking=blocking, description=words)]


def _keep(
    state: PipelineState,
    address: Address,
    rows: pl.DataFrame,
    key: tuple[str, ...],
) -> str:
    """Put the rows of a rejected table where an engineer finds them; the table stays as it was."""
    with Draft(state.pipeline, Work(address, "quarantine", (), ""), state.commit) as draft:
        draft.keep(address.rejected, rows, key)
    return address.rejected


def _rejected(address: Address, found: Audit, kept: str) -> DataRejected:
    failed = [r for r in found.results if not r.passed and r.severity == "critical"]
    listed = "\n".join(f"    {result.check_name}: {result.reason}" for result in failed)
    return DataRejected(
        f"{address}: {len(failed)} critical expectations failed; nothing was published.\n"
        f"{listed}\n"
        f"    The rows are kept at {kept} (main): ml-assets data quarantine show"
        f" {address.pipeline} {address.source}. Mend the source, or change the contract."
    )


def _check(result: ExpectationResult) -> CheckOutcome:
    critical = result.severity == "critical"
    return CheckOutcome(
        result.check_name,
        result.passed,
        critical,
        {
            "rows_failed": result.rows_failed,
            "observed": str(result.observed),
            **result.details,
        },
        result.reason,
    )
