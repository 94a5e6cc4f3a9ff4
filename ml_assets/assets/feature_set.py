"""feature_set: the team's feature function over the validated tables, one partition at a time."""

import dagster as dg
import polars as pl

from ml_assets.assets.graph import PipelineGraph
from ml_assets.assets.inputs import require_record
from ml_assets.assets.metadata import table_metadata
from ml_assets.assets.partitioned import Events, Made, make_partitions
from ml_assets.assets.publish import Draft, Work, input_version
from ml_assets.assets.raw_snapshot import window_of
from ml_assets.errors import WindowError
from ml_assets.features.function import FeatureFunction, build_features, load_function
from ml_assets.features.window import Window
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.spec.partitions import windows
from ml_assets.spec.records import StageRecord
from ml_assets.storage.layout import Address
from ml_assets.storage.snapshots import CommitId, SnapshotStore

STAGE = "feature_set"


def feature_set(graph: PipelineGraph) -> dg.AssetsDefinition:
    """The feature_set asset of a pipeline."""
    spec = graph.spec
    code_version = graph.code_version(STAGE)
    partitions = graph.feature_partitions()

    @graph.asset(
        STAGE,
        description="One row per decision, made only from what was known when it was taken:"
        f" {len(spec.features.numeric)} numeric and {len(spec.features.categorical)} categorical"
        f" features and the label `{spec.label.column}`.",
        kinds={"polars"},
        deps=[_dep(graph, name) for name in spec.sources],
        partitions_def=partitions,
        backfill_policy=dg.BackfillPolicy.single_run() if partitions else None,
    )
    def materialize(context: dg.AssetExecutionContext, snapshots: SnapshotsResource) -> Events:
        store = snapshots.store()
        build = load_function(graph.folder, spec.features.function, graph.name)

        def make(address: Address) -> Made:
            base = store.resolve("main")
            records = input_records(graph, store, base, address.partition)
            inputs = tuple(input_version(record, base) for record in records)
            rows = build_rows(graph, store, base, address.partition, build)
            work = Work(address, code_version, inputs, context.run_id)
            with Draft(store, work, base) as draft:
                draft.table(rows, spec.features.key)
                published = draft.publish(attributes={"label_rate": label_rate(rows, graph)})
            metadata = table_metadata(store, published, address)
            return Made(published, {**metadata, **published.record.attributes["label_rate"]})

        yield from make_partitions(context, Address(graph.name, STAGE), make)

    return materialize


def build_rows(
    graph: PipelineGraph,
    store: SnapshotStore,
    base: CommitId,
    partition: str | None,
    build: FeatureFunction,
) -> pl.DataFrame:
    """Call the feature function on the validated tables at ``base`` and check what it returns."""
    tables = {
        name: pl.concat([store.scan(base, a.table) for a in addresses])
        for name, addresses in input_addresses(graph, partition).items()
    }
    span = window_of(graph, partition)
    window = Window(partition, span.start if span else None, span.end if span else None)
    return build_features(build, tables, window, graph.spec)


def input_addresses(graph: PipelineGraph, partition: str | None) -> dict[str, list[Address]]:
    """The validated tables that one partition of features reads: itself and its look-back.

    Raises:
        WindowError: the look-back reaches before the first partition.
    """
    keys = look_back_keys(graph, partition)
    return {
        name: [
            Address(graph.name, "validated_table", name, key)
            for key in (keys if source.partitioned else [None])
        ]
        for name, source in graph.spec.sources.items()
    }


def input_records(
    graph: PipelineGraph, store: SnapshotStore, base: CommitId, partition: str | None
) -> list[StageRecord]:
    """The records of those tables; a missing one is an error that names it."""
    return [
        require_record(store, base, address)
        for addresses in input_addresses(graph, partition).values()
        for address in addresses
    ]


def look_back_keys(graph: PipelineGraph, partition: str | None) -> list[str | None]:
    """This partition and the ``look_back`` ones before it, oldest first."""
    if partition is None:
        return [None]
    span = window_of(graph, partition)
    assert span is not None
    keys: list[str | None] = [w.key for w in windows(graph.spec.partitions, span.end)]
    look_back = graph.spec.features.look_back
    if len(keys) <= look_back:
        raise WindowError(
            f"{graph.name}/feature_set [{partition}] looks back {look_back} partitions, but only"
            f" {len(keys) - 1} come before it. The first partition of features is number"
            f" {look_back + 1}; set a smaller features.look_back, or an earlier partitions.start."
        )
    return keys[-look_back - 1 :]


def label_rate(rows: pl.DataFrame, graph: PipelineGraph) -> dict[str, float]:
    """Share of positives (binary) among the rows that have a label, and the share without one."""
    label = rows[graph.spec.label.column]
    rates = {"unlabelled_share": label.null_count() / max(1, len(label))}
    if graph.spec.label.task == "binary" and label.count():
        rates["label_rate"] = float(label.cast(pl.Float64).mean() or 0.0)  # pyright: ignore[reportArgumentType]  a float column's mean is a float
    return rates


def _dep(graph: PipelineGraph, source: str) -> dg.AssetDep:
    key = graph.key("validated_table", source)
    if not graph.spec.sources[source].partitioned or not graph.spec.features.look_back:
        return dg.AssetDep(key)
    mapping = dg.TimeWindowPartitionMapping(start_offset=-graph.spec.features.look_back)
    return dg.AssetDep(key, partition_mapping=mapping)
