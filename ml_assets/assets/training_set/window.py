"""Chooses the feature rows of a set: the partitions of its window, and the rows of each split."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from functools import partial
from statistics import median
from typing import cast

import polars as pl

from ml_assets.adapters.step import RunLog
from ml_assets.assets.training_set.entities import keep_entities_apart, stratified_group_split
from ml_assets.assets.training_set.read_split import Part, SplitRows, labelled_rows
from ml_assets.assets.training_set.split import (
    SplitPlan,
    plan_time_split,
    random_split,
    rows_before,
    split_by_moment,
)
from ml_assets.errors import SpecError, WindowError, counted, did_you_mean
from ml_assets.graph.inputs import require_record, scan_each
from ml_assets.graph.publish import input_version
from ml_assets.records.recalls import require_sound
from ml_assets.spec.label import LabelSpec
from ml_assets.spec.partitions import windows
from ml_assets.spec.records import InputVersion
from ml_assets.spec.split import (
    RandomSplit,
    StratifiedGroupSplit,
    TimeGroupSplit,
    TimeSharesSplit,
    WindowSplit,
)
from ml_assets.spec.training_program import SPLITS, Split
from ml_assets.store.layout import Address, published_partitions
from ml_assets.store.pipeline_context import Pipeline, PipelineState

_WHOLE = 0.75
"""A partition of less time and rows than this share of the usual ones is not whole."""


def resolve_window(state: PipelineState, as_of: str | None) -> SplitPlan | None:
    """The partitions of each split; None where the data is read whole.

    Raises:
        WindowError: partitions are missing, or ``as_of`` is not one.
        SpecError: see ``require_enough``.
    """
    spec = state.spec
    require_enough(state.pipeline)
    if as_of is not None:
        require_as_of(state.pipeline, as_of)
    if not isinstance(spec.split, WindowSplit):
        return None
    available = list(
        published_partitions(state.store, state.commit, Address(state.name, "feature_set"))
    )
    if not available:
        raise WindowError(f"{state.name}/feature_set has no published partition{_why_none(state)}")
    order = feature_order(state.pipeline)
    return plan_time_split(spec.split, as_of or available[-1], available, order)


def _why_none(state: PipelineState) -> str:
    """What keeps feature_set from its first partition, and how to mend it."""
    back, sources = state.pipeline.warm_up("feature_set"), state.spec.sources
    tables = [
        Address(state.name, "validated_table", name)
        for name in sources
        if sources[name].partitioned
    ]
    have = (len(published_partitions(state.store, state.commit, table)) for table in tables)
    landed = min(have, default=0)
    if 0 < landed <= back:
        return (
            f": look_back needs {counted(back, 'earlier partition')}, and"
            f" {counted(landed, 'partition', 'have')} landed. Wait for more, or set a smaller one"
        )
    return f". Materialize it first, or run: ml-assets run {state.name}"


def require_enough(pipeline: Pipeline) -> None:
    """Hold the split to the partitions that there will ever be.

    Raises:
        SpecError: ``partitions.end`` leaves too few, however long one waits.
    """
    calendar, split = pipeline.spec.partitions, pipeline.spec.split
    if calendar.end is None or not isinstance(split, WindowSplit):
        return
    back = pipeline.warm_up("feature_set")
    ever = windows(calendar, datetime.combine(calendar.end, time(), UTC) + timedelta(days=2))
    if len(ever) >= back + split.needed:
        return
    past = f", and {back} before them for look_back" if back else ""
    raise SpecError(
        f"{pipeline.name} can never be trained: partitions.end {calendar.end} leaves"
        f" {counted(len(ever), 'partition')} for good, and the split takes {split.needed}"
        f" ({split.sizes}){past}. Set a later partitions.end, or none, or a smaller split."
    )


def require_window(pipeline: Pipeline, as_of: str | None, stages: Collection[str]) -> None:
    """Hold what a run asks for to the partitions that there can be, before it makes any.

    Raises:
        WindowError: see ``require_as_of``.
        SpecError: see ``require_enough``, where a training set is asked for.
    """
    if as_of is not None:
        require_as_of(pipeline, as_of)
    if "training_set" in stages:
        require_enough(pipeline)


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
        padded = "-".join(part.zfill(2) for part in as_of.split("-"))
        near = f" Did you mean {padded!r}?" if padded in order else did_you_mean(as_of, order)
        raise WindowError(
            f"--as-of {as_of!r} is not a partition of {pipeline.name}/feature_set, which has"
            f" {order[0]} to {order[-1]}.{near}"
        )


def feature_order(pipeline: Pipeline) -> list[str]:
    """Every partition that feature_set can have, oldest first."""
    keys = [window.key for window in windows(pipeline.spec.partitions, datetime.now(UTC))]
    return keys[pipeline.warm_up("feature_set") :]


def embargo_of(pipeline: Pipeline, window: SplitPlan | None) -> timedelta:
    """The time between two splits: that of the partitions between them."""
    if window is None:
        split = pipeline.spec.split
        by_time = isinstance(split, TimeSharesSplit)
        return split.gap(pipeline.spec.label.ahead) if by_time else timedelta(0)
    spans = {span.key: span for span in windows(pipeline.spec.partitions, datetime.now(UTC))}
    pairs = [(window.train, window.validation), (window.validation, window.holdout)]
    return min(spans[later[0]].start - spans[earlier[-1]].end for earlier, later in pairs)


def read_splits(state: PipelineState, window: SplitPlan | None) -> dict[Split, SplitRows]:
    """The labelled feature rows of each split, in the order of the partitions.

    Raises:
        WindowError: a split has no row.
    """
    spec, address = state.spec, Address(state.name, "feature_set")
    if window is not None:
        parts: dict[Split, list[Part]] = {
            name: partitions(state, keys) for name, keys in window.splits.items()
        }
        return labelled_rows(parts, spec.label)
    require_record(state, address)
    frame = rows_to_part(state.store.scan(state.commit, address.table).collect(), state.pipeline)
    return _parted(frame, part_rows(frame, state.pipeline), spec.label)


def _parted(frame: pl.DataFrame, part: pl.Series, label: LabelSpec) -> dict[Split, SplitRows]:
    """The labelled rows of each split, of a table that is read whole."""
    parts: dict[Split, list[Part]] = {
        name: [Part(frame.filter(part == name).lazy())] for name in SPLITS
    }
    return labelled_rows(parts, label)


def partial_partitions(state: PipelineState, window: SplitPlan | None) -> tuple[str, ...]:
    """Return what is to be said of partitions of the holdout that hold only a part of their time.

    They are told by the times of their rows and by their number, against train and validation.
    """
    if window is None:
        return ()
    at, address = state.spec.features.decision_at, Address(state.name, "feature_set")
    seen: dict[str, tuple[int, datetime, datetime]] = {}
    for key in (*window.train, *window.validation, *window.holdout):
        wanted = (pl.len(), pl.col(at).min().alias("first"), pl.col(at).max().alias("last"))
        rows, first, last = state.scan(address.at(key)).select(wanted).collect().row(0)
        if rows:
            seen[key] = rows, first, last
    others = [seen[key] for key in (*window.train, *window.validation) if key in seen]
    if not others:
        return ()
    usual = median((last - first).total_seconds() for _, first, last in others)
    rows = sorted(rows for rows, _, _ in others)
    spans = {span.key: span for span in windows(state.spec.partitions, datetime.now(UTC))}
    said: list[str] = []
    for key in window.holdout:
        count, first, last = seen.get(key, (0, spans[key].end, spans[key].end))
        short = (last - first).total_seconds() < _WHOLE * usual
        if short and count < _WHOLE * median(rows):
            late = first - spans[key].start > spans[key].end - last
            edge = f"begins at {first:%Y-%m-%d %H:%M}" if late else f"ends at {last:%Y-%m-%d %H:%M}"
            others_have = f"{rows[0]:,} to {rows[-1]:,}"
            said.append(
                f"{key} of the holdout is not complete: it {edge} with {counted(count, 'row')},"
                f" and the partitions before it have {others_have}"
            )
    return tuple(said)


def embargo_rows(state: PipelineState, window: SplitPlan | None) -> SplitRows:
    """The labelled rows of the partitions that belong to no split: those of the next windows."""
    label = state.spec.label
    if window is None or label.query:
        return SplitRows(())
    known = pl.col(label.column).is_not_null()
    columns = state.scan(Address(state.name, "feature_set").at(window.as_of)).collect_schema()
    parts = [part for key in window.embargo for part in partitions(state, [key])]
    return SplitRows(
        tuple(
            replace(part, rows=part.rows.filter(known))
            for part in parts
            if part.rows.collect_schema() == columns
        )
    )


def partitions(state: PipelineState, keys: Sequence[str]) -> list[Part]:
    """The feature rows of partitions, in their order; their columns are the same."""
    addresses = [Address(state.name, "feature_set").at(key) for key in keys]
    records = [state.record(address) for address in addresses]
    versions = [record.data_version if record else None for record in records]
    found = scan_each(state, addresses)
    schema = found[-1].collect_schema() if found else pl.Schema()
    # made anew each time that they are read: a scan keeps its file's statistics
    frames = [pl.defer(partial(_scan, state, one), schema=schema) for one in addresses]
    return [Part(frame, version) for frame, version in zip(frames, versions, strict=True)]


def _scan(state: PipelineState, address: Address) -> pl.DataFrame:
    """What ``pl.defer`` takes: of a lazy frame it reads no more than it is asked for."""
    return cast("pl.DataFrame", state.scan(address))


def read_earlier_splits(state: PipelineState, back: int) -> dict[Split, SplitRows]:
    """The same as of a time: ``back`` holdouts before the newest, of rows that are read whole.

    Raises:
        WindowError: a split has no row.
    """
    spec = state.spec
    if not isinstance(spec.split, TimeSharesSplit):
        raise ValueError(f"a split of kind {spec.split.kind!r} does not roll back by shares")
    frame = state.scan(Address(state.name, "feature_set")).collect()
    labelled = frame.filter(pl.col(spec.label.column).is_not_null())
    at = spec.features.decision_at
    rows, split = rows_before(labelled, at, spec.split, back)
    part = split_by_moment(rows[at], split, split.gap(spec.label.ahead))
    return _parted(rows, part, spec.label)


def keep_apart(
    log: RunLog, pipeline: Pipeline, rows: dict[Split, SplitRows]
) -> dict[Split, SplitRows]:
    """The rows that a split by time and entity keeps; how many it leaves out is told.

    Raises:
        WindowError: a split has no row left.
    """
    split = pipeline.spec.split
    if not isinstance(split, TimeGroupSplit):
        return rows
    kept = keep_entities_apart(rows, split)
    told = ", ".join(f"{len(rows[n]) - len(kept[n]):,} of {len(rows[n]):,} of {n}" for n in kept)
    log.info(f"rows left out, because another split has their {list(split.groups)}: {told}")
    return kept


def rows_to_part(frame: pl.DataFrame, pipeline: Pipeline) -> pl.DataFrame:
    """The rows of a table that is read whole which a split has shares of."""
    if isinstance(pipeline.spec.split, TimeSharesSplit):  # its shares are of the rows that count
        return frame.filter(pl.col(pipeline.spec.label.column).is_not_null())
    return frame


def part_rows(frame: pl.DataFrame, pipeline: Pipeline) -> pl.Series:
    """The split of each row of a table that is read whole."""
    spec, seed = pipeline.spec, pipeline.spec.training.seed
    match spec.split:
        case RandomSplit():
            together = (spec.label.query,) if spec.label.query else spec.features.key
            return random_split(frame, together, spec.split, seed)
        case TimeSharesSplit():
            gap = spec.split.gap(spec.label.ahead)
            return split_by_moment(frame[spec.features.decision_at], spec.split, gap)
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
