"""online_features: the newest feature row of each entity, published and served for look-ups."""

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, stage_asset
from ml_assets.adapters.executor import launches_jobs
from ml_assets.adapters.metadata import table_metadata
from ml_assets.adapters.resources import StoresResource
from ml_assets.errors import FeaturesDiffer, SettingsError, counted
from ml_assets.extras.online.store import STAGE
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.inputs import require_record
from ml_assets.graph.publish import Draft, Work, input_version
from ml_assets.spec.features import OnlineSpec
from ml_assets.store.layout import Address, recent_records
from ml_assets.store.pipeline_context import Pipeline, PipelineState

if TYPE_CHECKING:
    from ml_assets.extras.online.store import OnlineStore

CHECK_NAME = "lookup_equals_batch"
LOOKED_UP = 100
"""Entities that are looked up after a switch, by draw."""


def online_features(declared: Pipeline) -> dg.AssetsDefinition:
    """The online_features asset of a pipeline that serves features."""
    online = declared.spec.online
    assert online is not None
    code_version = code_version_of(declared, STAGE)
    address = Address(declared.name, STAGE)

    @stage_asset(
        declared,
        STAGE,
        description=f"The newest features of each ({', '.join(online.entity)}), for"
        " `ml-assets data lookup` and services; a version replaces the one before in one step.",
        kinds={"polars"},
        deps=[asset_key(declared, "feature_set")],
        check_specs=[
            dg.AssetCheckSpec(
                CHECK_NAME,
                asset=asset_key(declared, STAGE),
                blocking=True,
                description="Entities drawn at random are looked up: their rows equal the batch's.",
            )
        ],
    )
    def materialize(
        context: dg.AssetExecutionContext, stores: StoresResource
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        from ml_assets.extras.online.features import latest_rows, serve, unlike_batch

        pipeline = stores.open(declared)
        shelf = online_store(pipeline, context.instance)
        base = pipeline.store.resolve("main")
        sources = newest_features(pipeline.at(base), online)
        inputs = tuple(
            input_version(require_record(pipeline.at(base), one), base) for one in sources
        )
        scans = (pipeline.store.scan(base, source.table) for source in sources)
        rows = latest_rows(scans, online, pipeline.spec.features)
        work = Work(address, code_version, inputs, context.run.run_id)
        with Draft(pipeline, work, base) as draft:
            draft.table(rows, online.entity)
            # before it is published: what is recorded as made is served
            served = serve(shelf, pipeline.name, draft.version, online.entity, rows)
            published = draft.publish(attributes={}, data_version=served.version)
        drawn = Random(served.version).sample(range(len(rows)), min(LOOKED_UP, len(rows)))
        unlike = unlike_batch(shelf, served, rows[drawn])
        yield dg.AssetCheckResult(
            passed=not unlike,
            check_name=CHECK_NAME,
            description=unlike or f"{counted(len(drawn), 'row', 'equal')} the batch's",
        )
        if unlike:
            raise FeaturesDiffer(
                f"{address}: {unlike}. Another program may write there: find and stop it."
            )
        yield dg.MaterializeResult(
            metadata=table_metadata(pipeline.store, published, address),
            data_version=dg.DataVersion(served.version),
        )

    return materialize


def newest_features(state: PipelineState, online: OnlineSpec) -> list[Address]:
    """The partitions of feature_set that are served, oldest first.

    Raises:
        StorageError: none is published.
    """
    features = Address(state.name, "feature_set")
    records = recent_records(state.store, state.commit, features, online.look_back + 1)
    return [features.at(record.partition) for record in records] or [features]


def online_store(pipeline: Pipeline, instance: dg.DagsterInstance) -> "OnlineStore":
    """The online store, for a step of a run of this instance.

    Raises:
        SettingsError: it is a file, and the step's disk goes with its pod.
    """
    from ml_assets.extras.online.open import SERVERS, open_online

    location = pipeline.settings.online
    if location.split("://")[0] not in SERVERS and launches_jobs(instance):
        raise SettingsError(
            f"ML_ASSETS_ONLINE is the file {location}, and this step runs in a pod, whose disk"
            " is lost with it: nothing would be served. Set ML_ASSETS_ONLINE to a Redis server,"
            " redis://host:6379/0, in the environment of the pods; where it holds a password,"
            " in their Secret."
        )
    return open_online(location)
