"""Parity: rows of a batch made once more, as they would have been made when they were decided on.

The path is that of ``ml-assets predict``: the row among the published tables, and in these only
what had become known before its decision. What comes out has to be the batch's row, bit for bit.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

import numpy as np
import polars as pl

from ml_assets.assets.feature_set.function import build_features, load_function
from ml_assets.assets.feature_set.new_rows import Tables, keys_of
from ml_assets.errors import counted, quoted
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.partitions import windows
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Workplace
from ml_assets.store.snapshots import CommitId

MOST_ROWS = 50
"""Rows of a moment that are compared; making one costs what making all of them does."""


@dataclass(frozen=True)
class Parity:
    """What a replay found."""

    rows: int
    """How many were compared: all of one moment."""
    moment: datetime | None
    difference: str
    """The first value that differs, in words; empty where all are the same bits."""

    @property
    def reason(self) -> str:
        """A sentence for people."""
        if self.moment is None:
            return "the partition has no rows to replay"
        what = f"{counted(self.rows, 'row')} decided on at {self.moment:%Y-%m-%d %H:%M:%S} UTC"
        if self.difference:
            return (
                f"of {what}, replayed with what was known then, {self.difference}. The function"
                " uses what was not known yet, other rows of its partition, or no fixed order."
            )
        return f"{what}, replayed with what was known then: the same, bit for bit"


def replay(
    place: Workplace, commit: CommitId, partition: str | None, rows: pl.DataFrame, draw: Random
) -> Parity:
    """Make the rows of one moment, drawn from those of a partition, as they would be made online.

    Args:
        rows: the feature rows of the partition, as the batch made them from ``commit``.

    Raises:
        SpecError: the feature function does not return what the spec declares.
        WindowError: a table that it reads is not published.
    """
    if rows.is_empty():
        return Parity(0, None, "")
    spec = place.spec.features
    moment = rows[draw.randrange(len(rows))][spec.decision_at].item()
    batch = rows.filter(pl.col(spec.decision_at) == moment).head(MOST_ROWS)
    again = _rows_at(place, commit, partition, batch, moment)
    return Parity(len(batch), moment, difference(batch, again, spec))


def _rows_at(
    place: Workplace,
    commit: CommitId,
    partition: str | None,
    batch: pl.DataFrame,
    moment: datetime,
) -> pl.DataFrame:
    spec, key = place.spec, place.spec.features.key
    known = windows(spec.partitions, datetime.now(UTC))
    number = [span.key for span in known].index(partition) if partition is not None else None
    subject = spec.features.subject
    new = batch
    if subject is not None:
        cut = partition if spec.is_partitioned(subject.source) else None
        landed = Address(spec.name, "validated_table", subject.source, cut)
        keys = keys_of(batch, key, spec.sources[subject.source])
        new = place.store.scan(commit, landed.table).join(keys, on=key, how="semi").collect()
    tables = Tables(place, commit, subject, new, known, number, {}, known_before=moment)
    given = tables.read([*spec.sources, *spec.tables], spec.features.look_back, number)
    build = load_function(place.folder, spec.features.function, spec.name)
    made = build_features(build, given, tables.window(number), spec)
    return made.join(batch, on=key, how="semi")


def difference(batch: pl.DataFrame, again: pl.DataFrame, spec: FeaturesSpec) -> str:
    """The first feature of a row that has other bits; empty where none has.

    The label is not compared: it was not known.
    """
    left = batch.sort(spec.key)
    right = batch.select(spec.key).join(again, on=spec.key, how="left").sort(spec.key)
    made = left.select(spec.key).join(again, on=spec.key, how="semi")
    if len(made) < len(left):
        lost = left.select(spec.key).join(again, on=spec.key, how="anti")
        return f"{len(left) - len(made)} are not there, {_named(lost, 0)} for one"
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
