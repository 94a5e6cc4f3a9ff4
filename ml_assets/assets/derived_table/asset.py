"""derived_table: a table of the team's own, between the validated tables and the features."""

from datetime import UTC, datetime
from functools import partial

import dagster as dg

from ml_assets.adapters.declare_asset import asset_deps, stage_asset, table_partitions
from ml_assets.adapters.metadata import carded_partition, history, table_page
from ml_assets.adapters.partitioned import Events, Made, make_partitions
from ml_assets.adapters.resources import StoresResource
from ml_assets.assets.feature_set.function_inputs import table_reads
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.publish import Draft, Work, input_version
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline

STAGE = "derived_table"


def derived_table(declared: Pipeline, table: str) -> dg.AssetsDefinition:
    """The asset of one declared table."""
    spec = declared.spec.tables[table]
    code_version = code_version_of(declared, STAGE, table)
    partitions = table_partitions(declared, table)
    reads = table_reads(declared, table)

    @stage_asset(
        declared,
        STAGE,
        table,
        code_version=code_version,
        description=f"`{table}`, made by `{spec.function}` from {', '.join(spec.reads)}.",
        kinds={"polars"},
        deps=asset_deps(declared, reads.dependencies()),
        partitions_def=partitions,
    )
    def materialize(context: dg.AssetExecutionContext, stores: StoresResource) -> Events:
        from ml_assets.assets.feature_set.feature_function import check_keys, load_function
        from ml_assets.graph.data_card import card_of
        from ml_assets.reports.data_pictures import rows_at_a_glance, table_pictures

        pipeline = stores.open(declared)
        build = load_function(pipeline.folder, spec.function, pipeline.name)

        def make(address: Address) -> Made:
            begun = datetime.now(UTC)
            state = pipeline.now()
            records = reads.records(state, address.partition)
            inputs = tuple(input_version(record, state.commit) for record in records)
            tables = reads.tables(state, address.partition)
            rows = build(tables, reads.window(address.partition)).collect()
            check_keys(rows, spec.key, f"the table {table!r}")
            work = Work(address, code_version, inputs, context.run.run_id, begun=begun)
            with Draft(pipeline, work, state.commit) as draft:
                draft.table(rows, spec.key)
                draft.card(rows, spec.key)
                published = draft.publish(attributes={})
            metadata = carded_partition(pipeline, published, address)
            card = card_of(address, draft.statistics)
            page = partial(table_page, pipeline.store, published, address, card)
            return Made(published, metadata, page=page)

        whole = Address(pipeline.name, STAGE, table)
        so_far = partial(history, pipeline.store, whole, table_pictures, rows_at_a_glance)
        yield from make_partitions(context, pipeline, whole, make, so_far)

    return materialize
