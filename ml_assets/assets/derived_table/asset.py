"""derived_table: an asset of a team's own between the validated tables and the features."""

from datetime import UTC, datetime

import dagster as dg

from ml_assets.assets.feature_set.function import check_keys, load_function
from ml_assets.assets.feature_set.reads import table_reads
from ml_assets.graph.data_card import card_of
from ml_assets.graph.metadata import card_link, history, table_metadata
from ml_assets.graph.partitioned import Events, Made, make_partitions
from ml_assets.graph.pipeline_graph import PipelineGraph
from ml_assets.graph.publish import Draft, Work, input_version
from ml_assets.reports.data import table_pictures
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.store.layout import Address

STAGE = "derived_table"


def derived_table(graph: PipelineGraph, table: str) -> dg.AssetsDefinition:
    """The asset of one declared table."""
    spec = graph.spec.tables[table]
    code_version = graph.code_version(STAGE, table)
    partitions = graph.table_partitions(table)
    reads = table_reads(graph, table)

    @graph.asset(
        STAGE,
        table,
        description=f"`{table}`, made by `{spec.function}` from {', '.join(spec.reads)}.",
        kinds={"polars"},
        deps=reads.deps(),
        partitions_def=partitions,
    )
    def materialize(context: dg.AssetExecutionContext, snapshots: SnapshotsResource) -> Events:
        store = snapshots.store()
        build = load_function(graph.folder, spec.function, graph.name)

        def make(address: Address) -> Made:
            begun = datetime.now(UTC)
            base = store.resolve("main")
            records = reads.records(store, base, address.partition)
            inputs = tuple(input_version(record, base) for record in records)
            tables = reads.tables(store, base, address.partition)
            rows = build(tables, reads.window(address.partition)).collect()
            check_keys(rows, spec.key, f"the table {table!r}")
            work = Work(address, code_version, inputs, context.run_id, begun=begun)
            with Draft(store, work, base) as draft:
                draft.table(rows, spec.key)
                draft.card(rows, spec.key)
                published = draft.publish(attributes={})
            metadata = {**table_metadata(store, published, address), **card_link(address)}
            return Made(published, metadata, card=card_of(address, draft.statistics))

        whole = Address(graph.name, STAGE, table)
        yield from make_partitions(
            context, whole, make, lambda: history(store, whole, table_pictures)
        )

    return materialize
