"""feature_set: the team's feature function over the validated tables, one partition at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from ml_assets.adapters.check_outcome import CheckOutcome
from ml_assets.adapters.declare_asset import asset_deps, feature_partitions, stage_asset
from ml_assets.adapters.metadata import carded_partition, history, numbers, table_page
from ml_assets.adapters.partitioned import Events, Made, make_partitions, step_partitions
from ml_assets.adapters.resources import StoresResource
from ml_assets.assets.feature_set.function_inputs import Reads, feature_reads
from ml_assets.assets.feature_set.leak_checks import ROWS_CHECKS, leak_specs
from ml_assets.assets.feature_set.parity import parity_spec
from ml_assets.errors import counted
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.publish import Draft, Work, input_version
from ml_assets.settings import is_s3
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState

if TYPE_CHECKING:
    import polars as pl

    from ml_assets.assets.feature_set.feature_function import FeatureFunction

STAGE = "feature_set"


EncodeAhead = Callable[[dg.DagsterLogManager, Draft], Mapping[str, Any]]
"""Makes a shard of rows that are about to be published -> what their record says of it."""


def feature_set(declared: Pipeline, encode: EncodeAhead) -> dg.AssetsDefinition:
    """The feature_set asset of a pipeline.

    Args:
        encode: is called where the machines share an object store; it decides nothing of a row.
    """
    spec = declared.spec
    code_version = code_version_of(declared, STAGE)
    reads = feature_reads(declared)

    @stage_asset(
        declared,
        STAGE,
        code_version=code_version,
        description="One row per decision, made only from what was known when it was taken:"
        f" {counted(len(spec.features.numeric), 'numeric column')},"
        f" {counted(len(spec.features.categorical), 'categorical column')} and the label"
        f" `{spec.label.column}`.",
        kinds={"polars"},
        deps=asset_deps(declared, reads.dependencies()),
        partitions_def=feature_partitions(declared),
        check_specs=[parity_spec(declared), *leak_specs(declared, STAGE, ROWS_CHECKS)],
    )
    def materialize(context: dg.AssetExecutionContext, stores: StoresResource) -> Events:
        from ml_assets.assets.feature_set.decode import decode_times, feature_function
        from ml_assets.assets.feature_set.guards import RowGuards
        from ml_assets.reports.data_pictures import feature_pictures, labels_at_a_glance

        pipeline = stores.open(declared)
        build = feature_function(pipeline)
        warn = warning_once(context.log, spec.features.function)

        def rows_of(state: PipelineState, partition: str | None) -> "pl.LazyFrame":
            reads.records(state, partition)  # whole and sound, before a row is made
            return build_rows(reads, state, partition, build, warn)

        guards = RowGuards(reads, step_partitions(context), build, rows_of)

        def make(address: Address) -> Made:
            begun = datetime.now(UTC)
            judged = guards.judge(address)
            if judged.rows is None:
                return Made(None, {}, judged.checks, judged.error)
            state, rows = judged.rows
            records = reads.records(state, address.partition)
            inputs = tuple(input_version(record, state.commit) for record in records)
            work = Work(address, code_version, inputs, context.run.run_id, begun=begun)
            made = publish_rows(state, work, rows, judged.checks, partial(encode, context.log))
            return replace(made, metadata={**made.metadata, **decode_times(build)})

        whole = Address(pipeline.name, STAGE)
        so_far = partial(history, pipeline.store, whole, feature_pictures, labels_at_a_glance)
        yield from make_partitions(context, pipeline, whole, make, so_far)

    return materialize


def publish_rows(
    state: PipelineState,
    work: Work,
    rows: "pl.LazyFrame",
    checks: tuple[CheckOutcome, ...],
    encode: Callable[[Draft], Mapping[str, Any]],
) -> Made:
    """Publish the feature rows of a partition that no guard refused."""
    from ml_assets.assets.feature_set.labels import class_shares, label_rate
    from ml_assets.graph.data_card import card_of, label_columns

    pipeline, spec, address = state.pipeline, state.spec, work.address
    with Draft(pipeline, work, state.commit) as draft:
        draft.table(rows, spec.features.key)
        draft.card(rows, spec.features.key, label_columns(spec))
        rates, shares = label_rate(rows, pipeline), class_shares(rows, pipeline)
        ahead = encode(draft) if is_s3(pipeline.settings.objects) else {}
        told = {"label_rate": rates, "class_shares": shares, **ahead}
        published = draft.publish(attributes=told)
    metadata = {**numbers(rates), **carded_partition(pipeline, published, address)}
    card = card_of(address, draft.statistics, spec)
    page = partial(table_page, pipeline.store, published, address, card)
    return Made(published, metadata, checks, page=page)


def warning_once(log: dg.DagsterLogManager, function: str) -> Callable[[Sequence[str]], None]:
    """Warns of columns that the spec does not name: once a run, not in each partition."""
    told: set[str] = set()

    def warn(columns: Sequence[str]) -> None:
        new = [name for name in columns if name not in told]
        if new:
            log.warning(
                f"`{'`, `'.join(new)}` {'is' if len(new) == 1 else 'are'} returned by"
                f" {function}, but not named in features.numeric or features.categorical: left out"
            )
        told.update(columns)

    return warn


def build_rows(
    reads: Reads,
    state: PipelineState,
    partition: str | None,
    build: "FeatureFunction",
    on_unnamed: Callable[[Sequence[str]], None],
) -> "pl.LazyFrame":
    """Call the feature function on the published tables and check what it returns."""
    from ml_assets.assets.feature_set.feature_function import build_features

    tables, window = reads.tables(state, partition), reads.window(partition)
    return build_features(build, tables, window, reads.pipeline.spec, on_unnamed)
