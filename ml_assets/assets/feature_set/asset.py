"""feature_set: the team's feature function over the validated tables, one partition at a time."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import dagster as dg
import polars as pl

from ml_assets.adapters.declared import asset_deps, feature_partitions, stage_asset
from ml_assets.adapters.metadata import carded_table, history
from ml_assets.adapters.partitioned import Events, Made, make_partitions, step_partitions
from ml_assets.adapters.stores import StoresResource
from ml_assets.assets.feature_set.function import FeatureFunction, build_features, load_function
from ml_assets.assets.feature_set.future_events import FutureGuard, both_refusals
from ml_assets.assets.feature_set.leak_checks import ROWS_CHECKS, leak_specs
from ml_assets.assets.feature_set.parity import Replays, parity_spec
from ml_assets.assets.feature_set.reads import Reads, feature_reads
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.data_card import card_of, label_columns
from ml_assets.graph.publish import Draft, Work, input_version
from ml_assets.reports.data import feature_pictures
from ml_assets.spec.training import Task
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState

STAGE = "feature_set"
_LABEL_SUMMARY: Mapping[Task, str | None] = {
    "binary": "label_rate",
    "multiclass": None,
    "regression": "label_mean",
    "ranking": "label_mean",
}
"""What the mean of the labels is called; classes have none."""


def feature_set(declared: Pipeline) -> dg.AssetsDefinition:
    """The feature_set asset of a pipeline."""
    spec = declared.spec
    code_version = code_version_of(declared, STAGE)
    reads = feature_reads(declared)

    @stage_asset(
        declared,
        STAGE,
        description="One row per decision, made only from what was known when it was taken:"
        f" {len(spec.features.numeric)} numeric and {len(spec.features.categorical)} categorical"
        f" features and the label `{spec.label.column}`.",
        kinds={"polars"},
        deps=asset_deps(declared, reads.reads()),
        partitions_def=feature_partitions(declared),
        check_specs=[parity_spec(declared), *leak_specs(declared, STAGE, ROWS_CHECKS)],
    )
    def materialize(context: dg.AssetExecutionContext, stores: StoresResource) -> Events:
        pipeline = stores.open(declared)
        build = load_function(pipeline.folder, spec.features.function, pipeline.name)
        warn = warning_once(context.log, spec.features.function)

        def rows_of(state: PipelineState, partition: str | None) -> pl.DataFrame:
            reads.records(state, partition)  # whole and sound, before a row is made
            return build_rows(reads, state, partition, build, warn)

        replays = Replays(pipeline, step_partitions(context), rows_of)
        guard = FutureGuard(reads, step_partitions(context))

        def make(address: Address) -> Made:
            begun = datetime.now(UTC)
            replayed, differs = replays.checks(address.partition), replays.refusal(address)
            if guard.leaking:
                return Made(None, {}, replayed, both_refusals(guard.leaking, differs))
            state, rows = replays.rows(address)
            judged = guard.judge(state, address, build, rows)
            checks = (*judged.checks, *replayed)
            if refused := both_refusals(judged.error, differs):
                return Made(None, {}, checks, refused)
            records = reads.records(state, address.partition)
            inputs = tuple(input_version(record, state.commit) for record in records)
            work = Work(address, code_version, inputs, context.run_id, begun=begun)
            with Draft(pipeline, work, state.commit) as draft:
                draft.table(rows, spec.features.key)
                draft.card(rows, spec.features.key, label_columns(spec))
                attributes = {
                    "label_rate": label_rate(rows, pipeline),
                    "class_shares": class_shares(rows, pipeline),
                }
                published = draft.publish(attributes=attributes)
            metadata = carded_table(pipeline, published, address)
            rates, card = attributes["label_rate"], card_of(address, draft.statistics, spec)
            return Made(published, {**metadata, **rates}, checks, card=card)

        whole = Address(pipeline.name, STAGE)
        yield from make_partitions(
            context, whole, make, lambda: history(pipeline.store, whole, feature_pictures)
        )

    return materialize


def warning_once(log: dg.DagsterLogManager, function: str) -> Callable[[Sequence[str]], None]:
    """Warns of columns that the spec does not name: once a run, not in each partition."""
    told: set[str] = set()

    def warn(columns: Sequence[str]) -> None:
        new = [name for name in columns if name not in told]
        if new:
            log.warning(
                f"`{'`, `'.join(new)}` {'is' if len(new) == 1 else 'are'} returned by"
                f" {function} and not named in features.numeric or features.categorical: left out"
            )
        told.update(columns)

    return warn


def build_rows(
    reads: Reads,
    state: PipelineState,
    partition: str | None,
    build: FeatureFunction,
    on_unnamed: Callable[[Sequence[str]], None],
) -> pl.DataFrame:
    """Call the feature function on the published tables and check what it returns."""
    tables, window = reads.tables(state, partition), reads.window(partition)
    return build_features(build, tables, window, reads.pipeline.spec, on_unnamed)


def label_rate(rows: pl.DataFrame, pipeline: Pipeline) -> dict[str, float]:
    """Share of positives (of a number: the mean) of the labels, and the share of rows without."""
    label = rows[pipeline.spec.label.column]
    rates = {"unlabelled_share": label.null_count() / max(1, len(label))}
    name = _LABEL_SUMMARY[pipeline.spec.label.task]
    if name and label.count():
        rates[name] = float(label.cast(pl.Float64, strict=False).mean() or 0.0)  # pyright: ignore[reportArgumentType]  a float column's mean is a float
    return rates


def class_shares(rows: pl.DataFrame, pipeline: Pipeline) -> dict[str, float]:
    """Class -> its share of the labelled rows (multiclass)."""
    label = rows[pipeline.spec.label.column].drop_nulls().cast(pl.String)
    return {
        name: int((label == name).sum()) / max(1, len(label))
        for name in pipeline.spec.label.classes
    }
