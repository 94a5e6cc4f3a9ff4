"""validated_table: write, audit, publish - only rows that meet the contract get through."""

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, source_partitions, stage_asset
from ml_assets.adapters.metadata import carded_partition, history, numbers, table_page
from ml_assets.adapters.partitioned import Events, Made, make_partitions
from ml_assets.adapters.resources import StoresResource
from ml_assets.assets.validated_table.checks import contract_checks
from ml_assets.assets.validated_table.contract.suite import contract_of
from ml_assets.errors import DataRejected, counted
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.publish import Draft, Work, input_version
from ml_assets.spec.recalls import RowsReleased
from ml_assets.spec.schema_change import COLUMNS
from ml_assets.spec.sources import SourceSpec
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState

if TYPE_CHECKING:
    import polars as pl

    from ml_assets.assets.validated_table.contract.compiled import Audit

STAGE = "validated_table"
QUARANTINE_FILE = "quarantine.parquet"


def validated_table(declared: Pipeline, source_name: str) -> dg.AssetsDefinition:
    """The validated_table asset of one source, with one check for each expectation."""
    source = declared.spec.sources[source_name]
    contract = contract_of(declared.folder, source)
    code_version = code_version_of(declared, STAGE, source_name)
    key = asset_key(declared, STAGE, source_name)

    @stage_asset(
        declared,
        STAGE,
        source_name,
        code_version=code_version,
        description=f"The rows of `{source_name}` that meet the contract `{contract.name}`; the"
        " others are in quarantine, each with its reason.",
        kinds={"polars", "greatexpectations"},
        deps=[asset_key(declared, "raw_snapshot", source_name)],
        partitions_def=source_partitions(declared, source),
        check_specs=contract_checks(key, contract, declared.spec, source_name),
    )
    def materialize(context: dg.AssetExecutionContext, stores: StoresResource) -> Events:
        from ml_assets.assets.validated_table.snapshot_audit import audit_snapshot, releases
        from ml_assets.reports.data_pictures import contract_at_a_glance, contract_pictures

        pipeline = stores.open(declared)

        def make(address: Address) -> Made:
            begun = datetime.now(UTC)
            base = pipeline.store.resolve("main")
            raw = Address(pipeline.name, "raw_snapshot", source_name, address.partition)
            audited = audit_snapshot(pipeline.at(base), raw, contract)
            seen = tuple(input_version(one, base) for one in audited.before)
            inputs, found = (input_version(audited.record, base),), audited.found
            work = Work(address, code_version, inputs, context.run.run_id, seen=seen, begun=begun)
            released = releases(
                pipeline.at(base), address, context.run.tags, context.run.run_id, found
            )
            return publish_audited(pipeline.at(base), work, found, source, released)

        whole = Address(pipeline.name, STAGE, source_name)
        so_far = partial(history, pipeline.store, whole, contract_pictures, contract_at_a_glance)
        yield from make_partitions(context, pipeline, whole, make, so_far)

    return materialize


def publish_audited(
    state: PipelineState,
    work: Work,
    found: "Audit",
    source: SourceSpec,
    released: tuple[RowsReleased, ...],
) -> Made:
    """Publish what may be published of an audited table, keep the rest in quarantine."""
    from ml_assets.assets.validated_table.checks import contract_check
    from ml_assets.assets.validated_table.quarantine import reason_counts
    from ml_assets.graph.data_card import card_of

    checks = tuple(contract_check(result) for result in found.results)
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
    metadata: dict[str, Any] = numbers(_row_numbers(found))
    if source.known_at and len(found.clean):
        metadata["known_until"] = str(found.clean[source.known_at].max())
    reasons = reason_counts(found.quarantined)
    if reasons:
        listed = (f"{check}: {rows:,}" for check, rows in reasons.items())
        metadata["quarantine_reasons"] = "; ".join(listed)
    card = card_of(work.address, draft.statistics)
    page = partial(table_page, state.store, published, work.address, card)
    metadata |= carded_partition(state.pipeline, published, work.address)
    return Made(published, metadata, checks, page=page)


def _attributes(found: "Audit", released: tuple[RowsReleased, ...]) -> dict[str, Any]:
    from ml_assets.assets.validated_table.audits import audit_outcome
    from ml_assets.assets.validated_table.quarantine import reason_counts
    from ml_assets.assets.validated_table.snapshot_audit import RELEASES

    told = {RELEASES: [one.model_dump(mode="json") for one in released]} if released else {}
    return {
        "quarantined": len(found.quarantined),
        "reasons": reason_counts(found.quarantined),
        "warned": found.warned,
        "warnings": [r.reason for r in found.results if not r.passed],
        "audit": audit_outcome(found).model_dump(mode="json"),
        **told,
    }


def _row_numbers(found: "Audit") -> dict[str, float]:
    """What the page of the asset plots over its partitions."""
    rows_in = len(found.clean) + len(found.quarantined)
    return {
        "rows_in": rows_in,
        "quarantined": len(found.quarantined),
        "quarantined_share": len(found.quarantined) / rows_in if rows_in else 0.0,
        "warned": found.warned,
    }


def _keep(
    state: PipelineState,
    address: Address,
    rows: "pl.DataFrame",
    key: tuple[str, ...],
) -> str:
    """Put the rows of a rejected table where an engineer finds them; the table stays as it was."""
    with Draft(state.pipeline, Work(address, "quarantine", (), ""), state.commit) as draft:
        draft.keep(address.rejected, rows, key)
    return address.rejected


def _rejected(address: Address, found: "Audit", kept: str) -> DataRejected:
    failed = [r for r in found.results if not r.passed and r.severity == "critical"]
    listed = "\n".join(f"    {result.check_name}: {result.reason}" for result in failed)
    return DataRejected(
        f"{address}: {counted(len(failed), 'critical expectation')} failed; nothing was "
        "published.\n"
        f"{listed}\n"
        f"    The rows are kept at {kept} (main): ml-assets data quarantine show "
        f"{address.pipeline} {address.source}. Correct the source, or change the contract: "
        "severity warning lets rows pass, mostly allows some to fail."
    )
