"""A training set before it is published: split, encoded, and examined for leaks.

Rows with unknown outcomes are not in it; they are counted and named.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from ml_assets.adapters.step import RunLog
from ml_assets.assets.training_set.read_split import Part, SplitRows
from ml_assets.assets.training_set.shards import (
    NO_ROWS,
    Known,
    Written,
    load_schema,
    shard_ref,
    write_labelled,
    write_shard,
)
from ml_assets.assets.training_set.split import SplitPlan
from ml_assets.assets.training_set.split_leaks import examine, find_foreign_fit
from ml_assets.assets.training_set.window import (
    embargo_of,
    embargo_rows,
    keep_apart,
    partial_partitions,
    read_splits,
    resolve_window,
    window_inputs,
)
from ml_assets.errors import MlAssetsError, counted, quoted
from ml_assets.graph.data_card import card_of, split_labels
from ml_assets.graph.publish import TABLE_FILE, Draft, Published, Work
from ml_assets.reports.card import Card
from ml_assets.settings import is_s3
from ml_assets.spec.automation import duration_text
from ml_assets.spec.base import canonical_json
from ml_assets.spec.leaks import LeakFinding
from ml_assets.spec.records import InputVersion
from ml_assets.spec.split import TimeGroupSplit
from ml_assets.spec.study_record import parted_by
from ml_assets.spec.training_program import (
    SCHEMA_FILE,
    SHARD_FILE,
    SPLIT,
    Ref,
    Shard,
    ShardSchema,
    Split,
)
from ml_assets.store.disk import scratch_in
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState
from ml_assets.store.table_statistics import merge_all
from ml_assets.store.table_survey import survey

STAGE = "training_set"
SHARDS_FILE = "shards.json"
"""Beside the schema: the shards of all partitions of the window, by what they were encoded from."""
SHARD = "shard"
"""Attribute of a partition of feature_set: its shard, by the key that it is known by."""
_SHARDS: TypeAdapter[dict[str, Shard]] = TypeAdapter(dict[str, Shard])


@dataclass(frozen=True)
class EncodedSet:
    """The rows of a window, laid out in the object store for the training program."""

    window: SplitPlan | None
    """None: the data is read whole."""
    inputs: tuple[InputVersion, ...]
    ref: Ref
    schema: ShardSchema
    findings: tuple[LeakFinding, ...]
    """What every leak guard says; the set is there whatever they say, and is not published."""
    splits: Mapping[Split, SplitRows]
    """The rows of its splits, as they were before they were encoded."""
    written: Written
    """Its shards, those of the embargo's partitions too."""
    partial: tuple[str, ...] = ()
    """What is said of partitions of the holdout that are not whole."""

    @property
    def rows(self) -> dict[Split, int]:
        """Split -> its rows."""
        return {name: sum(one.rows for one in parts) for name, parts in self.schema.splits.items()}

    @property
    def attributes(self) -> dict[str, Any]:
        """Return the record of a set: where it lies, its window, its rows, what guards found."""
        holdout = self.window.holdout if self.window else ("",)
        return {
            "uri": self.ref.uri,
            "digest": self.ref.digest,
            "as_of": self.window.as_of if self.window else None,
            "holdout": [holdout[0], holdout[-1]],
            "rows": self.rows,
            "label_rate": []
            if self.schema.task == "language_model"
            else list(self.schema.label_rate),
            **({"partial": list(self.partial)} if self.partial else {}),
            "leaks": {one.name: one.model_dump(mode="json") for one in self.findings},
        }


def encode_window(log: RunLog, state: PipelineState, as_of: str | None) -> EncodedSet:
    """Split the rows of a window, encode them into the object store, examine them for leaks.

    Args:
        as_of: the last partition of the holdout; None: the newest that is published.

    Raises:
        WindowError: partitions are missing, ``as_of`` is not one, or a split has no row.
    """
    pipeline = state.pipeline
    window = resolve_window(state, as_of)
    inputs = window_inputs(state, window)
    _tell_unknown(log, state, window)
    partial = partial_partitions(state, window)
    for said in partial:
        log.warning(said)
    rows = keep_apart(log, pipeline, read_splits(state, window))
    written = encode_splits(state, rows, embargo_rows(state, window))
    log.info(f"the training set has {shards_in_words(written)}")
    schema = load_schema(written.ref)
    findings = examine_set(pipeline, rows, schema, window)
    return EncodedSet(window, inputs, written.ref, schema, findings, rows, written, partial)


def encode_splits(
    state: PipelineState, rows: Mapping[Split, SplitRows], beside: SplitRows = NO_ROWS
) -> Written:
    """Encode labelled rows into the object store; shards that are there are not made again.

    Args:
        beside: rows of no split, of which shards are made, too.
    """
    pipeline, spec = state.pipeline, state.spec
    written = write_labelled(
        rows,
        spec.features,
        spec.label,
        pipeline.objects.folder("shards", pipeline.name),
        beside=beside,
        known=known_shards(state),
        scratch=scratch_in(pipeline.scratch),
    )
    for shard in written.fresh:  # each by itself: a set that is there does not tell what it lacks
        pipeline.objects.publish(shard_ref(written.ref, shard))
    pipeline.objects.publish(written.ref)
    return written


def known_shards(state: PipelineState) -> Known:
    """The shards of the set that was published last, and those made with their partitions."""
    objects, path = state.objects, Address(state.name, STAGE).file(SHARDS_FILE)
    last = _SHARDS.validate_json(state.read_bytes(path)) if state.exists(path) else {}
    ahead: dict[str, Shard] = {}
    if is_s3(state.pipeline.settings.objects):
        for record in state.partitions(Address(state.name, "feature_set")).values():
            ahead |= _SHARDS.validate_python(record.attributes.get(SHARD, {}))

    def kept(digest: str) -> bool:
        return objects.renew("shards", state.name, digest, SHARD_FILE)

    return Known({**last, **ahead}, frozenset(ahead.keys() - last.keys()), kept)


def encode_ahead(log: RunLog, draft: Draft) -> dict[str, Any]:
    """Encode a partition of feature_set that is about to be published, for every window it is in.

    Returns:
        What its record says of the shard; empty where it cannot be encoded by itself.
    """
    pipeline, address = draft.pipeline, draft.work.address
    spec, known = pipeline.spec, pl.col(pipeline.spec.label.column).is_not_null()
    if address.partition is None or spec.label.query or spec.features.tokens:
        return {}
    if isinstance(spec.split, TimeGroupSplit):  # which rows it keeps hangs on other partitions
        return {}
    folder = pipeline.objects.folder("shards", pipeline.name)
    part = Part(pl.scan_parquet(draft.file(TABLE_FILE)).filter(known), draft.version)
    try:
        key, shard = write_shard(part, spec.features, spec.label, folder)
        pipeline.objects.publish(Ref(uri=str(folder / shard.digest), digest=shard.digest))
    except MlAssetsError as error:  # whether its rows can be trained on is training_set's to say
        said = quoted(error)
        log.warning(f"{address} is published without its shard, training_set makes it: {said}")
        return {}
    return {SHARD: {key: shard.model_dump(mode="json")}}


def shards_in_words(written: Written) -> str:
    """Return how many shards there are, and how many of them were there."""
    old = written.shards - written.encoded - written.ahead
    ahead = f", {written.ahead:,} encoded with their partitions" if written.ahead else ""
    return (
        f"{counted(written.shards, 'shard')}: {written.encoded:,} encoded, {old:,} as in the set"
        f" before{ahead}"
    )


def publish_set(
    state: PipelineState, work: Work, made: EncodedSet
) -> tuple[Published, Card | None]:
    """Publish the record, the schema and the data card of a set that leaks nothing."""
    with Draft(state.pipeline, work, state.commit, rows=sum(made.rows.values())) as draft:
        draft.text(SCHEMA_FILE, canonical_json(made.schema))  # stays when its files go by age
        shards = {
            key: shard.model_dump(mode="json") for key, shard in made.written.versions.items()
        }
        draft.text(SHARDS_FILE, canonical_json(shards))
        key, labels = state.spec.features.key, split_labels(state.spec)
        draft.card_of(merge_all(survey(rows, key, labels) for rows in _parts(made.splits)))
        told = {**made.attributes, "split": parted_by(state.spec)}
        published = draft.publish(attributes=told, data_version=made.ref.digest)
    return published, card_of(work.address, draft.statistics, state.spec)


def _parts(splits: Mapping[Split, SplitRows]) -> Iterator[pl.LazyFrame]:
    """The rows of each part, with their split: no shard has to be here to tell them."""
    for split, rows in splits.items():
        for part in rows.parts:
            if part.count:
                yield part.rows.with_columns(pl.lit(split).alias(SPLIT))


def examine_set(
    pipeline: Pipeline,
    rows: Mapping[Split, SplitRows],
    schema: ShardSchema,
    window: SplitPlan | None,
) -> tuple[LeakFinding, ...]:
    """Return what every leak guard says of the rows of a set, and of how they were encoded."""
    fitted = find_foreign_fit(schema, rows["train"], pipeline.spec.label)
    scratch = scratch_in(pipeline.scratch)
    return (*examine(rows, pipeline.spec, embargo_of(pipeline, window), scratch), fitted)


def _tell_unknown(log: RunLog, state: PipelineState, window: SplitPlan | None) -> None:
    """Say in the run's log of which rows nobody knows what came; of a time series as a warning."""
    if said := _unknown_outcomes(state, window):
        (log.warning if state.spec.label.ahead else log.info)(said)


def _unknown_outcomes(state: PipelineState, window: SplitPlan | None) -> str:
    """Return how many rows of the window have no label, the first of them, and why; empty: all have
    one.

    Args:
        window: the partitions of each split; None: the table is read whole.
    """
    label, key = state.spec.label, list(state.spec.features.key)
    address = Address(state.name, "feature_set")
    keys = [key for keys in window.splits.values() for key in keys] if window else [None]
    total, unknown, first = 0, 0, ""
    for one in keys:
        rows = state.scan(address.at(one)).select(*key, label.column).collect()
        without = rows.filter(pl.col(label.column).is_null()).select(key)
        if not unknown and len(without):
            named = without.row(0, named=True).items()
            first = ", ".join(f"{name} {value}" for name, value in named)
        total, unknown = total + len(rows), unknown + len(without)
    if not unknown:
        return ""
    later = duration_text(label.ahead) if label.ahead else ""
    entity = [name for name in key if name != state.spec.features.decision_at]
    same = f" of the same {', '.join(entity)}" if entity else ""
    why = f": there is no {label.of}{same} {later} after them" if later else ""
    if later and unknown > total / 2:
        why += f". That is {unknown / total:.0%}: check features.key, sources and label.ahead"
    return (
        f"the outcome of {unknown:,} of {counted(total, 'row')} is not known{why}."
        f" They are not trained on; the first: {quoted(first)}"
    )
