"""feature_set: the team's feature function over the validated tables, one partition at a time."""

import dagster as dg
import polars as pl

from ml_assets.assets.graph import PipelineGraph
from ml_assets.assets.metadata import history, table_metadata
from ml_assets.assets.partitioned import Events, Made, make_partitions
from ml_assets.assets.publish import Draft, Work, input_version
from ml_assets.assets.reads import Reads, feature_reads
from ml_assets.features.function import FeatureFunction, check_features, load_function
from ml_assets.pictures.data import feature_pictures
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.storage.layout import Address
from ml_assets.storage.snapshots import CommitId, SnapshotStore

STAGE = "feature_set"


def feature_set(graph: PipelineGraph) -> dg.AssetsDefinition:
    """The feature_set asset of a pipeline."""
    spec = graph.spec
    code_version = graph.code_version(STAGE)
    partitions = graph.feature_partitions()
    reads = feature_reads(graph)

    @graph.asset(
        STAGE,
        description="One row per decision, made only from what was known when it was taken:"
        f" {len(spec.features.numeric)} numeric and {len(spec.features.categorical)} categorical"
        f" features and the label `{spec.label.column}`.",
        kinds={"polars"},
        deps=reads.deps(),
        partitions_def=partitions,
        backfill_policy=dg.BackfillPolicy.single_run() if partitions else None,
    )
    def materialize(context: dg.AssetExecutionContext, snapshots: SnapshotsResource) -> Events:
        store = snapshots.store()
        build = load_function(graph.folder, spec.features.function, graph.name)

        def make(address: Address) -> Made:
            base = store.resolve("main")
            records = reads.records(store, base, address.partition)
            inputs = tuple(input_version(record, base) for record in records)
            rows = build_rows(reads, store, base, address.partition, build)
            work = Work(address, code_version, inputs, context.run_id)
            with Draft(store, work, base) as draft:
                draft.table(rows, spec.features.key)
                published = draft.publish(
                    attributes={
                        "label_rate": label_rate(rows, graph),
                        "class_shares": class_shares(rows, graph),
                    }
                )
            metadata = table_metadata(store, published, address)
            return Made(published, {**metadata, **published.record.attributes["label_rate"]})

        whole = Address(graph.name, STAGE)
        yield from make_partitions(
            context, whole, make, lambda: history(store, whole, feature_pictures)
        )

    return materialize


def build_rows(
    reads: Reads,
    store: SnapshotStore,
    base: CommitId,
    partition: str | None,
    build: FeatureFunction,
) -> pl.DataFrame:
    """Call the feature function on the published tables at ``base`` and check what it returns."""
    frame = build(reads.tables(store, base, partition), reads.window(partition)).collect()
    spec = reads.graph.spec
    return check_features(frame, spec.features, spec.label)


def label_rate(rows: pl.DataFrame, graph: PipelineGraph) -> dict[str, float]:
    """Share of positives (binary) among the rows that have a label, and the share without one."""
    label = rows[graph.spec.label.column]
    rates = {"unlabelled_share": label.null_count() / max(1, len(label))}
    if graph.spec.label.task == "binary" and label.count():
        rates["label_rate"] = float(label.cast(pl.Float64).mean() or 0.0)  # pyright: ignore[reportArgumentType]  a float column's mean is a float
    return rates


def class_shares(rows: pl.DataFrame, graph: PipelineGraph) -> dict[str, float]:
    """Class -> its share of the labelled rows (multiclass)."""
    label = rows[graph.spec.label.column].drop_nulls().cast(pl.String)
    return {
        name: int((label == name).sum()) / max(1, len(label)) for name in graph.spec.label.classes
    }
