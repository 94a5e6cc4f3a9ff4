"""training_set: one window of feature rows, split, leak-checked and laid out for the program."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import polars as pl

from ml_assets.adapters.check_outcome import whole_check
from ml_assets.adapters.declared import asset_key, stage_asset
from ml_assets.adapters.metadata import card_link, data_card, numbers, record_metadata
from ml_assets.adapters.run_config import RunConfig
from ml_assets.adapters.run_journal import chronicled
from ml_assets.adapters.stores import StoresResource
from ml_assets.assets.feature_set.leak_checks import leak_specs, outcome, refusal, set_checks
from ml_assets.assets.training_set.entities import keep_entities_apart, stratified_group_split
from ml_assets.assets.training_set.leaks import examine, find_foreign_fit
from ml_assets.assets.training_set.shards import (
    SCHEMA_FILE,
    labelled_rows,
    load_schema,
    scan_rows,
    write_labelled,
)
from ml_assets.assets.training_set.split import SplitPlan, plan_time_split, random_split
from ml_assets.errors import LeakError, WindowError, did_you_mean
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.data_card import card_of, split_labels
from ml_assets.graph.inputs import require_record, scan_together
from ml_assets.graph.publish import Draft, Work, input_version
from ml_assets.records.recalls import require_sound
from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.leaks import LeakFinding
from ml_assets.spec.partitions import windows
from ml_assets.spec.program import Ref, ShardSchema, Split
from ml_assets.spec.records import InputVersion
from ml_assets.spec.split import RandomSplit, StratifiedGroupSplit, TimeGroupSplit, WindowSplit
from ml_assets.store.layout import Address, published_partitions
from ml_assets.store.pipeline_context import Pipeline, PipelineState

STAGE = "training_set"


class TrainingSetConfig(RunConfig):
    """Which window to train on."""

    as_of: str | None = None
    """Last partition of the holdout; default: the latest published partition of feature_set."""


def training_set(declared: Pipeline) -> dg.AssetsDefinition:
    """The training_set asset of a pipeline."""
    code_version = code_version_of(declared, STAGE)

    @stage_asset(
        declared,
        STAGE,
        description="Train, validation and holdout rows, encoded: the preprocessing is fitted on"
        " the training split only, and the split is checked for leaks.",
        kinds={"polars", "numpy"},
        deps=[asset_key(declared, "feature_set")],
        config_schema=TrainingSetConfig.form(),
        check_specs=leak_specs(declared, STAGE, set_checks(declared)),
    )
    @chronicled(declared, STAGE)
    def materialize(
        context: dg.AssetExecutionContext,
        stores: StoresResource,
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        begun = datetime.now(UTC)
        pipeline = stores.open(declared, keeps_objects=True)
        base = pipeline.store.resolve("main")
        window = resolve_window(pipeline.at(base), TrainingSetConfig.of(context).as_of)
        inputs = window_inputs(pipeline.at(base), window)
        frames = keep_apart(context, pipeline, read_splits(pipeline.at(base), window))
        folder = pipeline.objects.folder("shards", pipeline.name)
        ref = write_labelled(frames, pipeline.spec.features, pipeline.spec.label, folder)
        pipeline.objects.publish(ref)
        schema = load_schema(ref)
        found = examine_set(pipeline, frames, schema, window)
        yield from (
            whole_check(asset_key(pipeline, STAGE), outcome(pipeline, one)) for one in found
        )
        refused = refusal(found, pipeline.spec, f"{pipeline.name}/{STAGE}")
        if refused:
            raise LeakError(refused)
        rows = split_sizes(schema)
        work = Work(
            Address(pipeline.name, STAGE), code_version, inputs, context.run_id, begun=begun
        )
        attributes = {**_attributes(ref, schema, window, rows), "leaks": _told(found)}
        with Draft(pipeline, work, base, rows=sum(rows.values())) as draft:
            draft.text(SCHEMA_FILE, canonical_json(schema))  # stays when its files go by age
            draft.card(
                scan_rows(ref, schema), pipeline.spec.features.key, split_labels(pipeline.spec)
            )
            published = draft.publish(attributes=attributes, data_version=ref.digest)
        yield dg.MaterializeResult(
            metadata={
                "window": dg.MetadataValue.md(window_markdown(window, rows)),
                "dagster/uri": ref.uri,
                **_card(pipeline, draft),
                **record_metadata(published),
                **_numbers(schema, rows),
            },
            data_version=dg.DataVersion(ref.digest),
        )

    return materialize


def _attributes(
    ref: Ref, schema: ShardSchema, window: SplitPlan | None, rows: Mapping[Split, int]
) -> dict[str, Any]:
    """What the record says of the set: where it lies, its window, how its rows are split."""
    return {
        "uri": ref.uri,
        "digest": ref.digest,
        "as_of": window.as_of if window else None,
        "holdout": [window.holdout[0], window.holdout[-1]] if window else ["", ""],
        "rows": rows,
        "label_rate": list(schema.label_rate),
    }


def _told(found: Sequence[LeakFinding]) -> dict[str, Any]:
    return {one.name: one.model_dump(mode="json") for one in found}


def _numbers(schema: ShardSchema, rows: Mapping[Split, int]) -> Mapping[str, dg.MetadataValue]:
    rate = schema.label_rate[0] if schema.label_rate else None
    return numbers({**{f"rows_{name}": count for name, count in rows.items()}, "label_rate": rate})


def split_sizes(schema: ShardSchema) -> dict[Split, int]:
    """Split -> its rows."""
    return {name: sum(one.rows for one in parts) for name, parts in schema.splits.items()}


def _card(pipeline: Pipeline, draft: Draft) -> dict[str, Any]:
    """The data card of the set, and where the whole of it is."""
    address = draft.work.address
    return {
        **card_link(pipeline, address),
        **data_card(card_of(address, draft.statistics, pipeline.spec)),
    }


def examine_set(
    pipeline: Pipeline,
    frames: Mapping[Split, pl.DataFrame],
    schema: ShardSchema,
    window: SplitPlan | None,
) -> tuple[LeakFinding, ...]:
    """What every leak guard says of the rows of a set, and of how they were encoded."""
    fitted = find_foreign_fit(schema, frames["train"], pipeline.spec.label)
    return (*examine(frames, pipeline.spec, embargo_of(pipeline, window)), fitted)


def resolve_window(state: PipelineState, as_of: str | None) -> SplitPlan | None:
    """The partitions of each split; None where the data is read whole.

    Raises:
        WindowError: partitions are missing, or ``as_of`` is not one.
    """
    spec = state.spec
    if as_of is not None:
        require_as_of(state.pipeline, as_of)
    if not isinstance(spec.split, WindowSplit):
        return None
    available = list(
        published_partitions(state.store, state.commit, Address(state.name, "feature_set"))
    )
    if not available:
        raise WindowError(
            f"{state.name}/feature_set has no published partition."
            f" Materialize it first, or run: ml-assets run {state.name}"
        )
    order = feature_order(state.pipeline)
    return plan_time_split(spec.split, as_of or available[-1], available, order)


def require_as_of(pipeline: Pipeline, as_of: str) -> None:
    """Hold the last partition that was asked for to those that there can be.

    Raises:
        WindowError: it is none of them, or the pipeline has none.
    """
    if not isinstance(pipeline.spec.split, WindowSplit):
        raise WindowError(
            f"{pipeline.name} is not split by partitions: --as-of {as_of!r} means nothing here."
            " Leave it out."
        )
    order = feature_order(pipeline)
    if as_of not in order:
        raise WindowError(
            f"--as-of {as_of!r} is no partition of {pipeline.name}/feature_set, which has"
            f" {order[0]} to {order[-1]}.{did_you_mean(as_of, order)}"
        )


def feature_order(pipeline: Pipeline) -> list[str]:
    """Every partition that feature_set can have, oldest first."""
    keys = [window.key for window in windows(pipeline.spec.partitions, datetime.now(UTC))]
    return keys[pipeline.warm_up("feature_set") :]


def embargo_of(pipeline: Pipeline, window: SplitPlan | None) -> timedelta:
    """The time between two splits: that of the partitions between them."""
    if window is None:
        return timedelta(0)
    spans = {span.key: span for span in windows(pipeline.spec.partitions, datetime.now(UTC))}
    pairs = [(window.train, window.validation), (window.validation, window.holdout)]
    return min(spans[later[0]].start - spans[earlier[-1]].end for earlier, later in pairs)


def read_splits(state: PipelineState, window: SplitPlan | None) -> dict[Split, pl.DataFrame]:
    """The labelled feature rows of each split, in the order of the partitions.

    Raises:
        WindowError: a split has no row.
    """
    spec, address = state.spec, Address(state.name, "feature_set")
    if window is not None:
        tables: dict[Split, pl.LazyFrame] = {
            name: scan_together(state, [address.at(key) for key in keys])
            for name, keys in window.splits.items()
        }
        return labelled_rows(tables, spec.label)
    require_record(state, address)
    frame = state.store.scan(state.commit, address.table).collect()
    part = part_rows(frame, state.pipeline)
    names: tuple[Split, ...] = ("train", "validation", "holdout")
    return labelled_rows({name: frame.filter(part == name).lazy() for name in names}, spec.label)


def keep_apart(
    context: dg.AssetExecutionContext, pipeline: Pipeline, rows: dict[Split, pl.DataFrame]
) -> dict[Split, pl.DataFrame]:
    """The rows that a split by time and entity keeps; how many it leaves out is told.

    Raises:
        WindowError: a split has no row left.
    """
    split = pipeline.spec.split
    if not isinstance(split, TimeGroupSplit):
        return rows
    kept = keep_entities_apart(rows, split)
    told = ", ".join(f"{len(rows[n]) - len(kept[n]):,} of {len(rows[n]):,} of {n}" for n in kept)
    context.log.info(f"rows left out, for another split has their {list(split.groups)}: {told}")
    return kept


def part_rows(frame: pl.DataFrame, pipeline: Pipeline) -> pl.Series:
    """The split of each row of a table that is read whole."""
    spec, seed = pipeline.spec, pipeline.spec.training.seed
    match spec.split:
        case RandomSplit():
            together = (spec.label.query,) if spec.label.query else spec.features.key
            return random_split(frame, together, spec.split, seed)
        case StratifiedGroupSplit():
            return stratified_group_split(frame, spec.features.key, spec.label, spec.split, seed)
        case _:
            raise WindowError(f"{pipeline.name}: a split by time needs a window")


def window_inputs(state: PipelineState, window: SplitPlan | None) -> tuple[InputVersion, ...]:
    """The exact feature partitions that a window is made of."""
    address = Address(state.name, "feature_set")
    if window is None:
        return (input_version(require_record(state, address), state.commit),)
    records = published_partitions(state.store, state.commit, address)
    keys = [key for keys in window.splits.values() for key in keys]
    for key in keys:
        require_sound(state.store, state.commit, records[key])
    return tuple(input_version(records[key], state.commit) for key in keys)


def window_markdown(window: SplitPlan | None, rows: dict[Split, int]) -> str:
    lines = ["| split | from | to | partitions | rows |", "|---|---|---|---|---|"]
    for name, count in rows.items():
        keys = window.splits[name] if window else ()
        first, last = (keys[0], keys[-1]) if keys else ("all", "all")
        lines.append(f"| {name} | {first} | {last} | {len(keys) or 1} | {count:,} |")
    return "\n".join(lines)
