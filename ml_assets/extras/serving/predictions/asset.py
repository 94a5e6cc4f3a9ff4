"""predictions: what the servers answered in one hour, as a table."""

from datetime import UTC, datetime

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, stage_asset
from ml_assets.adapters.metadata import partition_metadata, table_page
from ml_assets.adapters.partitioned import Events, Made, make_partitions
from ml_assets.adapters.resources import StoresResource
from ml_assets.extras.serving.prediction_log import KEY, is_closed
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.publish import Draft, Work
from ml_assets.spec.stages import PREDICTIONS_STAGE
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline


def hours(pipeline: Pipeline) -> dg.DynamicPartitionsDefinition:
    """The hours in which a server answered."""
    return dg.DynamicPartitionsDefinition(name=f"{pipeline.name}__served_hours")


def predictions(declared: Pipeline) -> dg.AssetsDefinition:
    """The predictions asset of a pipeline that logs what it serves."""

    @stage_asset(
        declared,
        PREDICTIONS_STAGE,
        description="What `ml-assets serve` answered in an hour: who answered which row, what, and"
        " when.",
        kinds={"polars"},
        deps=[asset_key(declared, "promoted_model")],
        partitions_def=hours(declared),
    )
    def materialize(context: dg.AssetExecutionContext, stores: StoresResource) -> Events:
        from ml_assets.extras.serving.predictions.hour import (
            discard_parts,
            logged_rows,
            made_from,
        )

        pipeline = stores.open(declared)
        code_version = code_version_of(declared, PREDICTIONS_STAGE)

        def make(address: Address) -> Made:
            hour = address.partition
            assert hour is not None
            base = pipeline.store.resolve("main")
            rows, parts = logged_rows(pipeline.at(base), hour)
            inputs = made_from(pipeline, hour, rows, parts)
            work = Work(address, code_version, inputs, context.run.run_id)
            with Draft(pipeline, work, base) as draft:
                draft.table(rows, KEY)
                published = draft.publish(attributes={"requests": rows["request"].n_unique()})
            if is_closed(hour, datetime.now(UTC)):
                discard_parts(pipeline.objects, pipeline.name, hour, parts)
            shown = partition_metadata(pipeline.store, published, address)
            by = rows.group_by("stage").len().iter_rows()
            metadata = {**shown, **{f"rows in {stage}": count for stage, count in by}}
            return Made(
                published, metadata, page=lambda: table_page(pipeline.store, published, address)
            )

        yield from make_partitions(
            context, pipeline, Address(pipeline.name, PREDICTIONS_STAGE), make, dict
        )

    return materialize
