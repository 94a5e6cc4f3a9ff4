"""raw_snapshot: a source as it was when it was read - immutable, typed, versioned by content."""

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, source_partitions, stage_asset
from ml_assets.adapters.metadata import history, partition_metadata, table_page
from ml_assets.adapters.partitioned import Events, Made, make_partitions
from ml_assets.adapters.resources import StoresResource
from ml_assets.assets.raw_snapshot.checks import as_declared, changed, schema_check_spec
from ml_assets.errors import SchemaChanged
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.publish import Draft, Published, Work
from ml_assets.spec.schema_change import COLUMNS, noted
from ml_assets.spec.sources import SourceSpec
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline

if TYPE_CHECKING:
    from ml_assets.assets.raw_snapshot.schema import Reading

STAGE = "raw_snapshot"


def raw_snapshot(declared: Pipeline, source_name: str) -> dg.AssetsDefinition:
    """The raw_snapshot asset of one source."""
    source = declared.spec.sources[source_name]
    code_version = code_version_of(declared, STAGE, source_name)

    @stage_asset(
        declared,
        STAGE,
        source_name,
        code_version=code_version,
        description=f"`{source_name}` as it was read: {_origin(source)}",
        kinds={"polars", source.kind if source.kind != "events" else "jsonl"},
        partitions_def=source_partitions(declared, source),
        check_specs=[schema_check_spec(asset_key(declared, STAGE, source_name))],
    )
    def materialize(context: dg.AssetExecutionContext, stores: StoresResource) -> Events:
        from ml_assets.assets.raw_snapshot.receipt import receipt_version, window_of
        from ml_assets.assets.raw_snapshot.sources import Sources
        from ml_assets.reports.data_pictures import rows_at_a_glance, table_pictures

        pipeline = stores.open(declared)
        origin = Sources.of(pipeline)

        def make(address: Address) -> Made:
            begun = datetime.now(UTC)
            window = window_of(pipeline, address.partition)
            try:
                with noted() as found:
                    reading = origin.read(source_name, source, window)
            except SchemaChanged as error:
                return Made(None, {}, (changed(error.changes),), error)
            receipt = receipt_version(source_name, address.partition, reading.receipt)
            work = Work(address, code_version, (receipt,), context.run.run_id, begun=begun)
            published = publish_reading(pipeline, work, reading, source)
            checks = (as_declared(found, source),)
            where = (pipeline.store, published, address)
            shown = {**partition_metadata(*where), "receipt": reading.receipt}
            return Made(published, shown, checks, page=partial(table_page, *where))

        whole = Address(pipeline.name, STAGE, source_name)
        so_far = partial(history, pipeline.store, whole, table_pictures, rows_at_a_glance)
        yield from make_partitions(context, pipeline, whole, make, so_far)

    return materialize


def publish_reading(
    pipeline: Pipeline, work: Work, reading: "Reading", source: SourceSpec
) -> Published:
    """Publish a source's rows as they were read, with the receipt of where they came from."""
    with Draft(pipeline, work, pipeline.store.resolve("main")) as draft:
        draft.table(reading.frame, source.key)
        return draft.publish(
            attributes={
                "receipt": reading.receipt,
                "settings": pipeline.settings.digest,
                COLUMNS: dict(source.columns),
            }
        )


def _origin(source: SourceSpec) -> str:
    if source.kind == "sql":
        return f"table `{source.table}` of the database `{source.connection}`"
    if source.kind == "iceberg":
        return f"Iceberg table `{source.table}` of the catalog `{source.catalog}`"
    return f"{source.kind} at `{source.path}`"
