"""raw_snapshot: a source as it was when it was read - immutable, typed, versioned by content."""

from datetime import UTC, datetime

import dagster as dg

from ml_assets.adapters.declared import asset_key, source_partitions, stage_asset
from ml_assets.adapters.metadata import history, table_metadata
from ml_assets.adapters.partitioned import Events, Made, make_partitions
from ml_assets.adapters.stores import StoresResource
from ml_assets.assets.raw_snapshot.checks import as_declared, changed, schema_check_spec
from ml_assets.assets.raw_snapshot.outside import Sources
from ml_assets.errors import SchemaChanged
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.publish import Draft, Work
from ml_assets.reports.data import table_pictures
from ml_assets.spec.canonical import digest_of
from ml_assets.spec.partitions import PartitionWindow, windows
from ml_assets.spec.records import InputVersion
from ml_assets.spec.schema_change import COLUMNS, noted_columns
from ml_assets.spec.sources import SourceSpec
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline

STAGE = "raw_snapshot"


def raw_snapshot(declared: Pipeline, source_name: str) -> dg.AssetsDefinition:
    """The raw_snapshot asset of one source."""
    source = declared.spec.sources[source_name]
    code_version = code_version_of(declared, STAGE, source_name)

    @stage_asset(
        declared,
        STAGE,
        source_name,
        description=f"`{source_name}` as it was read: {_origin(source)}",
        kinds={"polars", source.kind if source.kind != "events" else "jsonl"},
        partitions_def=source_partitions(declared, source),
        check_specs=[schema_check_spec(asset_key(declared, STAGE, source_name))],
    )
    def materialize(context: dg.AssetExecutionContext, stores: StoresResource) -> Events:
        pipeline = stores.open(declared)
        origin = Sources.of(pipeline)

        def make(address: Address) -> Made:
            begun = datetime.now(UTC)
            window = window_of(pipeline, address.partition)
            try:
                with noted_columns() as noted:
                    reading = origin.read(source_name, source, window)
            except SchemaChanged as error:
                return Made(None, {}, (changed(error.changes),), error)
            receipt = receipt_version(source_name, address.partition, reading.receipt)
            work = Work(address, code_version, (receipt,), context.run_id, begun=begun)
            with Draft(pipeline, work, pipeline.store.resolve("main")) as draft:
                draft.table(reading.frame, source.key)
                published = draft.publish(
                    attributes={
                        "receipt": reading.receipt,
                        "settings": origin.settings.digest,
                        COLUMNS: dict(source.columns),
                    }
                )
            checks = (as_declared(noted, source),)
            return Made(published, table_metadata(pipeline.store, published, address), checks)

        whole = Address(pipeline.name, STAGE, source_name)
        yield from make_partitions(
            context, whole, make, lambda: history(pipeline.store, whole, table_pictures)
        )

    return materialize


def window_of(pipeline: Pipeline, partition: str | None) -> PartitionWindow | None:
    """The span of time of a partition key; None for a source that is read whole."""
    if partition is None:
        return None
    known = {w.key: w for w in windows(pipeline.spec.partitions, Sources.now())}
    return known[partition]


def receipt_version(source: str, partition: str | None, receipt: dict[str, object]) -> InputVersion:
    """What was read, as the input of a raw snapshot: the outside world has no commit."""
    return InputVersion(
        key=f"source:{source}", partition=partition, version=digest_of(receipt), commit=None
    )


def _origin(source: SourceSpec) -> str:
    if source.kind == "sql":
        return f"table `{source.table}` of the database `{source.connection}`"
    return f"{source.kind} at `{source.path}`"
