"""Replays rows of a batch as they would have been made at the time of their decision.

The path is that of ``ml-assets predict``: the row stands among the published tables, cut to what
was known before its decision. The result has to equal the batch's row, bit for bit.

Rows of a time series are also made with an empty row in their history: one without values, some way
back, changes neither a lag of three hours nor a mean of a day. A ``shift(3)`` then gives another
hour's value, as it does over a gap: the function counts rows instead of time. One that reads only
the newest row cannot be distinguished from a look-up of the last known value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

import numpy as np
import polars as pl

from ml_assets.assets.feature_set.decode import feature_function
from ml_assets.assets.feature_set.feature_function import build_features
from ml_assets.assets.feature_set.future_check import differs_again
from ml_assets.assets.feature_set.labels import deciding
from ml_assets.assets.feature_set.new_rows import Tables, keys_of
from ml_assets.errors import (
    DiskRefuses,
    MlAssetsError,
    StorageError,
    StoreAway,
    counted,
    quoted,
)
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.partitions import PartitionWindow, windows
from ml_assets.spec.sources import SourceSpec
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import PipelineState

MOST_ROWS = 50
"""Rows of a moment that are compared; making one costs what making all of them does."""
_NEWEST, _BEFORE = "__newest", "__before"


@dataclass(frozen=True)
class Parity:
    """The result of replaying one partition's rows with what was known at their decision."""

    rows: int
    """How many were compared: all of one moment."""
    moment: datetime | None
    difference: str
    """The first value that differs, in words; empty where all are the same bits."""
    failure: str = ""
    """Why the rows could not be made again, in words; empty where they could."""
    counting: str = ""
    """The first value that changes with an empty row before it, in words; empty where none does."""
    untried: str = ""
    """Why nobody knows whether the function counts rows, in words; empty where it was tried."""

    @property
    def passed(self) -> bool:
        return not (self.failure or self.difference or self.counting)

    @property
    def reason(self) -> str:
        """A sentence for people."""
        if self.moment is None:
            return "the partition has no rows to replay"
        what = f"{counted(self.rows, 'row')} decided on at {self.moment:%Y-%m-%d %H:%M:%S} UTC"
        if self.failure:
            return (
                f"of {what}, replayed with what was known then, the function fails, as it would"
                f" for a prediction: {self.failure}"
            )
        if self.difference:
            return (
                f"of {what}, replayed with what was known then, {self.difference}. The function "
                "uses what was not known yet, or other rows of its partition, or depends on the "
                "order of rows."
            )
        if self.counting:
            return (
                f"of {what}, {self.counting}. The function counts rows, not time: across a gap it "
                "takes the values of another hour. Use lag and trailing of "
                "ml_assets.assets.feature_set.history_features, or polars' windows by time."
            )
        same = f"{what}, replayed with what was known then: the same, bit for bit"
        return f"{same}; {self.untried}" if self.untried else same


def replay(state: PipelineState, partition: str | None, rows: pl.LazyFrame, draw: Random) -> Parity:
    """Make the rows of one moment, drawn from those of a partition, as they would be made online.

    Args:
        rows: the feature rows of the partition, as the batch made them from the state.

    Raises:
        StorageError: a store does not say what it holds, so that nobody knows the result.
    """
    spec = state.spec.features
    decided = rows.select(spec.decision_at).collect().to_series()
    if decided.is_empty():
        return Parity(0, None, "")
    moment = decided[draw.randrange(len(decided))]
    batch = rows.filter(pl.col(spec.decision_at) == moment).head(MOST_ROWS).collect()
    try:
        again = _rows_at(state, partition, batch, moment)
    except StorageError:
        raise
    except MlAssetsError as error:
        return Parity(len(batch), moment, "", failure=quoted(error))
    differs = difference(batch, again, spec)
    if differs:
        return Parity(len(batch), moment, differs)
    try:
        counting = _with_empty_rows(state, partition, batch, moment)
    except (StoreAway, DiskRefuses):
        raise
    except Exception as error:  # a team's function may refuse a row without values
        untried = (
            "not tried whether the function counts rows: it fails on a row without values with"
            f" {quoted(error)}"
        )
        return Parity(len(batch), moment, "", untried=untried)
    return Parity(len(batch), moment, "", counting=counting)


def _with_empty_rows(
    state: PipelineState, partition: str | None, batch: pl.DataFrame, moment: datetime
) -> str:
    """What an empty row in the history of each entity changes; nothing where time is what counts.

    Asked of a time series alone: of a subject whose key holds when its rows are.
    """
    spec = state.spec
    subject = spec.features.subject
    series = subject and _series_of(spec.sources[subject.source], spec.features)
    if subject is None or series is None:
        return ""
    known = windows(spec.partitions, datetime.now(UTC))
    number = [span.key for span in known].index(partition) if partition is not None else None
    landed = _landed(state, subject.source, number, known, spec.features.look_back)
    empty = empty_rows(landed, batch, series, moment)
    if empty.is_empty():
        return ""
    again = _rows_at(state, partition, batch, moment, empty)
    return counted_rows(batch, again, spec.features, empty[series.time].max())


def _rows_at(
    state: PipelineState,
    partition: str | None,
    batch: pl.DataFrame,
    moment: datetime,
    more: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """The rows of a moment made alone; ``more`` are rows of the subject that stand before them."""
    spec, key = state.spec, state.spec.features.key
    known = windows(spec.partitions, datetime.now(UTC))
    number = [span.key for span in known].index(partition) if partition is not None else None
    subject = spec.features.subject
    new = batch
    if subject is not None:
        keys = keys_of(batch, key, spec.sources[subject.source])
        back = spec.features.look_back if spec.label.ahead else 0
        landed = _landed(state, subject.source, number, known, back)
        new = landed.join(keys, on=key, how="semi").collect()
        new = new if more is None else pl.concat([new, more.select(new.columns)])
    tables = Tables(state, subject, new, known, number, {}, known_before=moment)
    given = tables.read([*spec.sources, *spec.tables], spec.features.look_back, number)
    build = feature_function(state.pipeline)
    window = deciding(tables.window(number), spec.label, unknown=True)
    made = build_features(build, given, window, spec)
    return made.join(batch.lazy(), on=key, how="semi").collect()


def _landed(
    state: PipelineState,
    source: str,
    number: int | None,
    known: Sequence[PartitionWindow],
    back: int,
) -> pl.LazyFrame:
    """The rows of the subject in a partition, and in so many before it."""
    spec, whole = state.spec, Address(state.name, "validated_table", source)
    if number is None or not spec.is_partitioned(source):
        return state.scan(whole)
    return pl.concat([state.scan(whole.at(known[n].key)) for n in range(number - back, number + 1)])


def difference(batch: pl.DataFrame, again: pl.DataFrame, spec: FeaturesSpec) -> str:
    """The first feature of a row that has other bits; empty where none has.

    The label is not compared: it was not known.
    """
    left = batch.sort(spec.key)
    right = batch.select(spec.key).join(again, on=spec.key, how="left").sort(spec.key)
    made = left.select(spec.key).join(again, on=spec.key, how="semi")
    if len(made) < len(left):
        lost = left.select(spec.key).join(again, on=spec.key, how="anti")
        verb = "is" if len(lost) == 1 else "are"
        return f"{len(lost)} {verb} not there, {_named(lost, 0)} for one"
    for name in (spec.decision_at, *spec.numeric, *spec.categorical):
        unlike = np.flatnonzero(_differs(left[name], right[name]))
        if unlike.size:
            row = int(unlike[0])
            then, now = (quoted(repr(rows[name][row])) for rows in (left, right))
            where = _named(left.select(spec.key), row)
            return f"{name!r} of {where} is {then} in the batch and {now} online"
    return ""


def _named(keys: pl.DataFrame, row: int) -> str:
    return quoted(f"({', '.join(str(value) for value in keys.row(row))})")


def _differs(one: pl.Series, other: pl.Series) -> np.ndarray:
    """Row -> whether the bits differ: 0.0 is not -0.0, and NaN is NaN."""
    if one.dtype != pl.Float64:
        return one.ne_missing(other).to_numpy()
    nulls = one.is_null() != other.is_null()
    bits = [column.fill_null(0.0).to_numpy().view(np.int64) for column in (one, other)]
    return nulls.to_numpy() | (bits[0] != bits[1])


@dataclass(frozen=True)
class Series:
    """Describes how the rows of a source follow each other."""

    time: str
    """The column of its key that says when."""
    entity: tuple[str, ...]
    """The others: a station, a shop. Empty: all rows are of one."""


def _series_of(source: SourceSpec, features: FeaturesSpec) -> Series | None:
    """The series that a source is; None: its key holds no time, so it is none."""
    subject = features.subject
    named = (source.known_at, subject.time if subject else None, features.decision_at)
    times = [name for name in named if name in source.key and source.columns[name] == "datetime"]
    if not times:
        return None
    return Series(times[0], tuple(name for name in source.key if name != times[0]))


def empty_rows(
    landed: pl.LazyFrame, batch: pl.DataFrame, series: Series, moment: datetime
) -> pl.DataFrame:
    """Make a row without values for each entity, between its last two rows but its own.

    Args:
        landed: rows of the source.
        batch: feature rows of one moment, with the source's key.
    """
    entity = list(series.entity)
    past = landed.filter(pl.col(series.time) < moment)
    if entity:
        past = past.join(batch.lazy().select(entity).unique(), on=entity, how="semi")
    time = pl.col(series.time).sort()
    ends = [time.last().alias(_NEWEST), time.slice(-2, 1).first().alias(_BEFORE), pl.len()]
    found = (past.group_by(entity) if entity else past.group_by(pl.lit(0).alias("__one"))).agg(ends)
    between = pl.col(_BEFORE) + (pl.col(_NEWEST) - pl.col(_BEFORE)) / 2
    schema = landed.collect_schema()
    placed = (
        found.filter(pl.col("len") > 1)
        .select(*entity, between.cast(schema[series.time]).alias(series.time))
        .collect()
        .sort(*entity, series.time)
    )
    others = [
        pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
        if name not in placed.columns
    ]
    return placed.with_columns(others).select(schema.names())


def counted_rows(batch: pl.DataFrame, again: pl.DataFrame, spec: FeaturesSpec, at: object) -> str:
    """The first feature that an empty row changes, in words; empty where none does.

    A number that is one higher wherever it changes is a count of rows, which is allowed.

    Args:
        again: the rows of the batch, made with the empty row in their history.
        at: when the empty row is.
    """
    key = list(spec.key)
    both = batch.join(again, on=key, how="inner", suffix="__again", maintain_order="left")
    for name in [one for one in (*spec.numeric, *spec.categorical) if one not in key]:
        changed = both.filter(differs_again(name, number=name in spec.numeric))
        one_more = pl.col(f"{name}__again") == pl.col(name) + 1
        is_count = name in spec.numeric and changed.select(one_more.fill_null(False).all()).item()
        if changed.is_empty() or is_count:
            continue
        row = changed.row(0, named=True)
        where = quoted(f"({', '.join(str(row[column]) for column in key)})")
        return (
            f"{name!r} of {where} is {quoted(repr(row[name]))}, and"
            f" {quoted(repr(row[f'{name}__again']))} when an empty row is at {at} before it"
        )
    return ""
