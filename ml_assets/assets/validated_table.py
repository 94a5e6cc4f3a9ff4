"""validated_table: write, audit, publish - only rows that meet the contract get through."""

import dagster as dg
import polars as pl

from ml_assets.assets.card import card_of
from ml_assets.assets.graph import PipelineGraph
from ml_assets.assets.inputs import require_record
from ml_assets.assets.metadata import card_link, history, numbers, table_metadata
from ml_assets.assets.partitioned import CheckOutcome, Events, Made, make_partitions
from ml_assets.assets.publish import Draft, Work, input_version
from ml_assets.errors import DataRejected
from ml_assets.pictures.data import contract_pictures
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.spec.records import StageRecord
from ml_assets.spec.sources import SourceSpec
from ml_assets.storage.layout import Address, published_partitions
from ml_assets.storage.snapshots import CommitId, SnapshotStore
from ml_assets.validation.audits import audit_outcome
from ml_assets.validation.compiled import Audit, ExpectationResult, audit
from ml_assets.validation.contract import load_contract
from ml_assets.validation.volume import CHECK_NAME, judge_volume

STAGE = "validated_table"
QUARANTINE_FILE = "quarantine.parquet"


def validated_table(graph: PipelineGraph, source_name: str) -> dg.AssetsDefinition:
    """The validated_table asset of one source, with one check for each expectation."""
    source = graph.spec.sources[source_name]
    contract = load_contract(graph.folder / source.contract)
    code_version = graph.code_version(STAGE, source_name)
    key = graph.key(STAGE, source_name)

    @graph.asset(
        STAGE,
        source_name,
        description=f"The rows of `{source_name}` that meet the contract `{contract.name}`; the"
        " others are in quarantine, each with its reason.",
        kinds={"polars", "greatexpectations"},
        deps=[graph.key("raw_snapshot", source_name)],
        partitions_def=graph.partitions(source),
        backfill_policy=dg.BackfillPolicy.single_run() if source.partitioned else None,
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
    def materialize(context: dg.AssetExecutionContext, snapshots: SnapshotsResource) -> Events:
        store = snapshots.store()

        def make(address: Address) -> Made:
            base = store.resolve("main")
            raw = Address(graph.name, "raw_snapshot", source_name, address.partition)
            record = require_record(store, base, raw)
            inputs = (input_version(record, base),)
            before = record_before(store, base, raw) if source.volume else None
            seen = (input_version(before, base),) if before else ()
            work = Work(address, code_version, inputs, context.run_id, seen=seen)
            found = audit(store.scan(base, raw.table), contract)
            if source.volume:
                rows_before = before.rows if before else None
                found = found.with_result(
                    judge_volume(record.rows or 0, rows_before, source.volume)
                )
            return publish_audited(store, base, work, found, source)

        whole = Address(graph.name, STAGE, source_name)
        yield from make_partitions(
            context, whole, make, lambda: history(store, whole, contract_pictures)
        )

    return materialize


def record_before(store: SnapshotStore, base: CommitId, address: Address) -> StageRecord | None:
    """The record of the newest partition before this one, of the same asset."""
    earlier = published_partitions(store, base, address)
    keys = [key for key in earlier if key < (address.partition or "")]
    return earlier[keys[-1]] if keys else None


def publish_audited(
    store: SnapshotStore, base: CommitId, work: Work, found: Audit, source: SourceSpec
) -> Made:
    """Publish what may be published of an audited table, keep the rest in quarantine."""
    checks = tuple(_check(result) for result in found.results)
    if not found.passed:
        kept = _keep(store, base, work.address, found.quarantined, source.key)
        return Made(None, {}, checks, _rejected(work.address, found, kept))
    with Draft(store, work, base) as draft:
        draft.table(found.clean, source.key)
        draft.card(found.clean, source.key)
        draft.extra_table(QUARANTINE_FILE, found.quarantined, source.key)
        published = draft.publish(
            attributes={
                "quarantined": len(found.quarantined),
                "warned": found.warned,
                "warnings": [r.reason for r in found.results if not r.passed],
                "audit": audit_outcome(found).model_dump(mode="json"),
            }
        )
    metadata = {**table_metadata(store, published, work.address), **card_link(work.address)}
    card = card_of(work.address, draft.statistics)
    rows = {
        "rows_in": len(found.clean) + len(found.quarantined),
        "quarantined": len(found.quarantined),
        "warned": found.warned,
    }
    if source.known_at and len(found.clean):
        metadata["known_until"] = str(found.clean[source.known_at].max())
    return Made(published, {**metadata, **numbers(rows)}, checks, card=card)


def _volume_check(key: dg.AssetKey, source: SourceSpec) -> list[dg.AssetCheckSpec]:
    if source.volume is None:
        return []
    blocking = source.volume.severity == "critical"
    words = f"Rows within {source.volume.within:.0%} of the partition before"
    return [dg.AssetCheckSpec(CHECK_NAME, asset=key, blocking=blocking, description=words)]


def _keep(
    store: SnapshotStore,
    base: CommitId,
    address: Address,
    rows: pl.DataFrame,
    key: tuple[str, ...],
) -> str:
    """Put the rows of a rejected table where an engineer finds them; the table stays as it was."""
    path = f"quarantine/{address.key}/{address.partition or 'all'}.parquet".replace(":", "-")
    with Draft(store, Work(address, "quarantine", (), ""), base) as draft:
        draft.keep(path, rows, key)
    return path


def _rejected(address: Address, found: Audit, kept: str) -> DataRejected:
    failed = [r for r in found.results if not r.passed and r.severity == "critical"]
    reasons = "\n".join(f"    {result.check_name}: {result.reason}" for result in failed)
    return DataRejected(
        f"{address}: {len(failed)} critical expectations failed; nothing was published.\n"
        f"{reasons}\n"
        f"    The rows are kept at {kept} (main). Mend the source, or change the contract."
    )


def _check(result: ExpectationResult) -> CheckOutcome:
    critical = result.severity == "critical"
    return CheckOutcome(
        result.check_name,
        result.passed,
        dg.AssetCheckSeverity.ERROR if critical else dg.AssetCheckSeverity.WARN,
        {"rows_failed": result.rows_failed, "observed": str(result.observed)},
        result.reason,
    )
