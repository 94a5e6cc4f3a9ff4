"""training_set: one window of feature rows, split, leak-checked and laid out for the program."""

from datetime import UTC, datetime

import dagster as dg
import polars as pl

from ml_assets.assets.card import card_of, split_labels
from ml_assets.assets.chronicle import chronicled
from ml_assets.assets.graph import PipelineGraph
from ml_assets.assets.inputs import require_record, resolve_base
from ml_assets.assets.metadata import card_link, data_card, numbers, record_metadata
from ml_assets.assets.publish import Draft, Work, input_version
from ml_assets.dataset.leaks import check_leaks
from ml_assets.dataset.shards import load_schema, scan_rows, write_shards
from ml_assets.dataset.split import SplitPlan, plan_time_split, random_split
from ml_assets.errors import WindowError
from ml_assets.registry.release.recalls import require_sound
from ml_assets.resources.objects import ObjectsResource
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.spec.partitions import windows
from ml_assets.spec.program import Split
from ml_assets.spec.records import InputVersion
from ml_assets.storage.layout import Address, published_partitions
from ml_assets.storage.snapshots import CommitId, SnapshotStore

STAGE = "training_set"


class TrainingSetConfig(dg.Config):
    """Which window to train on."""

    as_of: str | None = None
    """Last partition of the holdout; default: the latest published partition of feature_set."""


def training_set(graph: PipelineGraph) -> dg.AssetsDefinition:
    """The training_set asset of a pipeline."""
    code_version = graph.code_version(STAGE)

    @graph.asset(
        STAGE,
        description="Train, validation and holdout rows, encoded: the preprocessing is fitted on"
        " the training split only, and the split is checked for leaks.",
        kinds={"polars", "numpy"},
        deps=[graph.key("feature_set")],
    )
    @chronicled(graph, STAGE)
    def materialize(
        context: dg.AssetExecutionContext,
        config: TrainingSetConfig,
        snapshots: SnapshotsResource,
        objects: ObjectsResource,
    ) -> dg.MaterializeResult:
        store = snapshots.store()
        base = resolve_base(context, store)
        window = resolve_window(graph, store, base, config.as_of)
        inputs = window_inputs(graph, store, base, window)
        splits = read_splits(graph, store, base, window)
        check_leaks(splits, graph.spec.features, graph.spec.split, graph.spec.label.query)
        shards = objects.store().folder("shards", graph.name)
        ref = write_shards(splits, graph.spec.features, graph.spec.label, shards)
        schema = load_schema(ref)
        rows: dict[Split, int] = {
            name: sum(s.rows for s in parts) for name, parts in schema.splits.items()
        }
        address = Address(graph.name, STAGE)
        work = Work(address, code_version, inputs, context.run_id)
        attributes = {
            "uri": ref.uri,
            "digest": ref.digest,
            "as_of": window.as_of if window else None,
            "holdout": [window.holdout[0], window.holdout[-1]] if window else ["", ""],
            "rows": rows,
            "label_rate": list(schema.label_rate),
        }
        with Draft(store, work, base, rows=sum(rows.values())) as draft:
            draft.card(scan_rows(ref, schema), graph.spec.features.key, split_labels(graph.spec))
            published = draft.publish(attributes=attributes, data_version=ref.digest)
        return dg.MaterializeResult(
            metadata={
                "window": dg.MetadataValue.md(window_markdown(window, rows)),
                "dagster/uri": ref.uri,
                **card_link(address),
                **data_card(card_of(address, draft.statistics, graph.spec)),
                **record_metadata(published),
                **numbers({f"rows_{name}": count for name, count in rows.items()}),
                **numbers({"label_rate": schema.label_rate[0] if schema.label_rate else None}),
            },
            data_version=dg.DataVersion(ref.digest),
        )

    return materialize


def resolve_window(
    graph: PipelineGraph, store: SnapshotStore, base: CommitId, as_of: str | None
) -> SplitPlan | None:
    """The partitions of each split; None where the data is read whole.

    Raises:
        WindowError: partitions are missing, or ``as_of`` is not one.
    """
    spec = graph.spec
    if spec.split.kind != "time":
        if as_of is not None:
            raise WindowError(
                f"{graph.name} has no partitions: as_of {as_of!r} means nothing here."
            )
        return None
    available = list(published_partitions(store, base, Address(graph.name, "feature_set")))
    if not available:
        raise WindowError(
            f"{graph.name}/feature_set has no published partition."
            f" Materialize it first, or run: ml-assets run {graph.name}"
        )
    order = feature_order(graph)
    return plan_time_split(spec.split, as_of or available[-1], available, order)


def feature_order(graph: PipelineGraph) -> list[str]:
    """Every partition that feature_set can have, oldest first."""
    keys = [window.key for window in windows(graph.spec.partitions, datetime.now(UTC))]
    return keys[graph.warm_up("feature_set") :]


def read_splits(
    graph: PipelineGraph, store: SnapshotStore, base: CommitId, window: SplitPlan | None
) -> dict[Split, pl.LazyFrame]:
    """The feature rows of each split, in the order of the partitions."""
    address = Address(graph.name, "feature_set")
    if window is not None:
        return {
            name: pl.concat([store.scan(base, address.at(key).table) for key in keys])
            for name, keys in window.splits.items()
        }
    spec = graph.spec
    if spec.split.kind != "random":
        raise WindowError(f"{graph.name}: a time split needs a window")
    require_record(store, base, address)
    frame = store.scan(base, address.table).collect()
    together = (spec.label.query,) if spec.label.query else spec.features.key
    part = random_split(frame, together, spec.split, spec.training.seed)
    names: tuple[Split, ...] = ("train", "validation", "holdout")
    return {name: frame.filter(part == name).lazy() for name in names}


def window_inputs(
    graph: PipelineGraph, store: SnapshotStore, base: CommitId, window: SplitPlan | None
) -> tuple[InputVersion, ...]:
    """The exact feature partitions that a window is made of."""
    address = Address(graph.name, "feature_set")
    if window is None:
        return (input_version(require_record(store, base, address), base),)
    records = published_partitions(store, base, address)
    keys = [key for keys in window.splits.values() for key in keys]
    for key in keys:
        require_sound(store, base, records[key])
    return tuple(input_version(records[key], base) for key in keys)


def window_markdown(window: SplitPlan | None, rows: dict[Split, int]) -> str:
    lines = ["| split | from | to | partitions | rows |", "|---|---|---|---|---|"]
    for name, count in rows.items():
        keys = window.splits[name] if window else ()
        first, last = (keys[0], keys[-1]) if keys else ("all", "all")
        lines.append(f"| {name} | {first} | {last} | {len(keys) or 1} | {count:,} |")
    return "\n".join(lines)
