"""raw_snapshot: a source as it was when it was read - immutable, typed, versioned by content."""

from datetime import UTC, datetime

import dagster as dg

from ml_assets.assets.raw_snapshot.checks import as_declared, changed, schema_check_spec
from ml_assets.assets.raw_snapshot.resource import Sources, SourcesResource
from ml_assets.errors import SchemaChanged
from ml_assets.graph.metadata import history, table_metadata
from ml_assets.graph.partitioned import Events, Made, make_partitions
from ml_assets.graph.pipeline_graph import PipelineGraph
from ml_assets.graph.publish import Draft, Work
from ml_assets.reports.data import table_pictures
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.spec.canonical import digest_of
from ml_assets.spec.partitions import PartitionWindow, windows
from ml_assets.spec.records import InputVersion
from ml_assets.spec.schema_change import COLUMNS, noted_columns
from ml_assets.spec.sources import SourceSpec
from ml_assets.store.layout import Address

STAGE = "raw_snapshot"


def raw_snapshot(graph: PipelineGraph, source_name: str) -> dg.AssetsDefinition:
    """The raw_snapshot asset of one source."""
    source = graph.spec.sources[source_name]
    code_version = graph.code_version(STAGE, source_name)

    @graph.asset(
        STAGE,
        source_name,
        description=f"`{source_name}` as it was read: {_origin(source)}",
        kinds={"polars", source.kind if source.kind != "events" else "jsonl"},
        partitions_def=graph.partitions(source),
        check_specs=[schema_check_spec(graph.key(STAGE, source_name))],
    )
    def materialize(
        context: dg.AssetExecutionContext, snapshots: SnapshotsResource, sources: SourcesResource
    ) -> Events:
        store, origin = snapshots.store(), sources.sources()

        def make(address: Address) -> Made:
            begun = datetime.now(UTC)
            window = window_of(graph, address.partition)
            try:
                with noted_columns() as noted:
                    reading = origin.read(source_name, source, window)
            except SchemaChanged as error:
                return Made(None, {}, (changed(error.changes),), error)
            receipt = receipt_version(source_name, address.partition, reading.receipt)
            work = Work(address, code_version, (receipt,), context.run_id, begun=begun)
            with Draft(store, work, store.resolve("main")) as draft:
                draft.table(reading.frame, source.key)
                published = draft.publish(
                    attributes={
                        "receipt": reading.receipt,
                        "settings": origin.settings.digest,
                        COLUMNS: dict(source.columns),
                    }
                )
            checks = (as_declared(noted, source),)
            return Made(published, table_metadata(store, published, address), checks)

        whole = Address(graph.name, STAGE, source_name)
        yield from make_partitions(
            context, whole, make, lambda: history(store, whole, table_pictures)
        )

    return materialize


def window_of(graph: PipelineGraph, partition: str | None) -> PartitionWindow | None:
    """The span of time of a partition key; None for a source that is read whole."""
    if partition is None:
        return None
    known = {w.key: w for w in windows(graph.spec.partitions, Sources.now())}
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
