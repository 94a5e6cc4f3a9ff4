"""online_features: the newest feature row of each entity, published and served for look-ups."""

from collections.abc import Iterator
from random import Random

import dagster as dg

from ml_assets.assets.online_features.features import STAGE, latest_rows, serve, unlike_batch
from ml_assets.errors import FeaturesDiffer
from ml_assets.graph.inputs import require_record, resolve_base
from ml_assets.graph.metadata import table_metadata
from ml_assets.graph.pipeline_graph import PipelineGraph
from ml_assets.graph.publish import Draft, Work, input_version
from ml_assets.resources.online import OnlineResource
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.spec.features import OnlineSpec
from ml_assets.store.layout import Address, recent_records
from ml_assets.store.snapshots import CommitId, SnapshotStore

CHECK_NAME = "lookup_equals_batch"
LOOKED_UP = 100
"""Entities that are looked up after a switch, by draw."""


def online_features(graph: PipelineGraph, declared: OnlineSpec) -> dg.AssetsDefinition:
    """The online_features asset of a pipeline that serves features."""
    code_version = graph.code_version(STAGE)
    address = Address(graph.name, STAGE)

    @graph.asset(
        STAGE,
        description=f"The newest features of each ({', '.join(declared.entity)}), for"
        " `ml-assets data lookup` and services; a version replaces the one before in one step.",
        kinds={"polars"},
        deps=[graph.key("feature_set")],
        check_specs=[
            dg.AssetCheckSpec(
                CHECK_NAME,
                asset=graph.key(STAGE),
                blocking=True,
                description="Entities drawn by chance are looked up: their rows are the batch's.",
            )
        ],
    )
    def materialize(
        context: dg.AssetExecutionContext, snapshots: SnapshotsResource, online: OnlineResource
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        store, shelf = snapshots.store(), online.store(context.instance)
        base = resolve_base(context, store)
        sources = newest_features(graph, store, base, declared)
        inputs = tuple(input_version(require_record(store, base, one), base) for one in sources)
        scans = (store.scan(base, source.table) for source in sources)
        rows = latest_rows(scans, declared, graph.spec.features)
        work = Work(address, code_version, inputs, context.run_id)
        with Draft(store, work, base) as draft:
            draft.table(rows, declared.entity)
            # before it is published: what is recorded as made is served
            served = serve(shelf, graph.name, draft.version, declared.entity, rows)
            published = draft.publish(attributes={}, data_version=served.version)
        drawn = Random(served.version).sample(range(len(rows)), min(LOOKED_UP, len(rows)))
        unlike = unlike_batch(shelf, served, rows[drawn])
        yield dg.AssetCheckResult(
            passed=not unlike,
            check_name=CHECK_NAME,
            description=unlike or f"{len(drawn)} entities looked up: their rows are the batch's",
        )
        if unlike:
            raise FeaturesDiffer(f"{address}: {unlike}. Does something else write there?")
        yield dg.MaterializeResult(
            metadata=table_metadata(store, published, address),
            data_version=dg.DataVersion(served.version),
        )

    return materialize


def newest_features(
    graph: PipelineGraph, store: SnapshotStore, commit: CommitId, declared: OnlineSpec
) -> list[Address]:
    """The partitions of feature_set that are served, oldest first.

    Raises:
        StorageError: none is published.
    """
    features = Address(graph.name, "feature_set")
    records = recent_records(store, commit, features, declared.look_back + 1)
    return [features.at(record.partition) for record in records] or [features]
