"""The rows a model is judged on: labels as numbers, and the block that each row belongs to."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from heapq import nsmallest
from typing import assert_never

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.evaluation_report.forecasts import persistence
from ml_assets.errors import SpecError, counted, quoted
from ml_assets.spec.base import digest_of
from ml_assets.spec.pipeline import LabelSpec, PipelineSpec
from ml_assets.spec.split import (
    HoldoutDraw,
    RandomSplit,
    StratifiedGroupSplit,
    TimeSharesSplit,
    groups_of,
)
from ml_assets.spec.training import Task

_EPOCH = date(1970, 1, 1).toordinal()
_SAMPLE = 64
"""Hashes that are kept of a holdout. Two that share a fifth of their rows have one in common, but
for one pair in two thousand."""


Encoded = Callable[[], Iterable[tuple[NDArray[np.float32], NDArray[np.int32]]]]
"""() -> the numbers [rows, m], NaN is allowed, and the codes [rows, c] of one shard after another.
"""


@dataclass(frozen=True)
class Rows:
    """The rows of one split, raw and encoded, in one order."""

    frame: pl.DataFrame
    """[n] the columns before encoding: of the training split those that a baseline reads."""
    label: np.ndarray
    """[n] as ``encode_labels`` gives it."""
    encoded: Encoded
    """Made when it is asked for: it is the most of what there is to hold."""

    @classmethod
    def of(cls, label: LabelSpec, frame: pl.DataFrame, encoded: Encoded) -> "Rows":
        """The rows with their labels encoded.

        Raises:
            SpecError: a label is null, or none of the declared ones.
        """
        return cls(frame, encode_labels(label, frame), encoded)

    def features(self, order: NDArray[np.int64]) -> tuple[NDArray[np.float32], int]:
        """[n, m + c] the numbers and then the codes of the rows in this order; and m."""
        place = np.argsort(order)
        found, numbers, begin = np.zeros((len(order), 0), np.float32), 0, 0
        for numeric, codes in self.encoded():
            if not begin:
                numbers = numeric.shape[1]
                found = np.empty((len(order), numbers + codes.shape[1]), np.float32)
            here = place[begin : begin + len(numeric)]
            found[here, :numbers], found[here, numbers:] = numeric, codes
            begin += len(numeric)
        if begin != len(order):
            raise ValueError(
                f"{counted(len(order), 'row')}, {begin} encoded: they must be the same rows"
            )
        return found, numbers


@dataclass(frozen=True)
class Truth:
    """Holds the outcomes of the rows that a model is judged on, and what metrics need of them."""

    task: Task
    labels: np.ndarray
    """[n] as ``encode_labels`` gives it."""
    classes: Sequence[str] = ()
    """Multiclass: in the order of the predictions."""
    queries: np.ndarray | None = None
    """Ranking: [n] int64, equal for rows that compete."""
    ndcg_at: int = 10
    persistence: np.ndarray | None = None
    """Regression: [n] what was seen at the decision, where the label is taken from the future."""

    def of(self, rows: np.ndarray) -> "Truth":
        """That of some of the rows only."""
        queries = None if self.queries is None else self.queries[rows]
        kept = None if self.persistence is None else self.persistence[rows]
        return replace(self, labels=self.labels[rows], queries=queries, persistence=kept)


@dataclass(frozen=True)
class Holdout:
    """The rows a model never saw, as its judge needs them."""

    truth: Truth
    blocks: np.ndarray
    """[n] rows of one block are resampled together."""
    slices: dict[str, pl.Series]
    """Column -> [n] values to report on separately."""
    span: tuple[str, str]
    """First and last partition or moment, or two empty strings."""
    digest: str | None = None
    """SHA-256 of the keys of the rows, whatever their order; None: they have none."""
    draw: HoldoutDraw | None = None
    """None where they are cut in time."""

    @classmethod
    def of(cls, spec: PipelineSpec, frame: pl.DataFrame, span: tuple[str, str]) -> "Holdout":
        """The labels, blocks and slice columns of holdout rows.

        Args:
            span: first and last partition, or two empty strings where they are read whole.

        Raises:
            SpecError: a column is missing, or a label is not what the spec declares.
        """
        for column in spec.evaluation.slices:
            _require(frame, column, "evaluation.slices")
        for column in spec.features.key:
            _require(frame, column, "features.key")
        queries = _queries(spec.label, frame)
        truth = Truth(
            spec.label.task,
            encode_labels(spec.label, frame),
            spec.label.classes,
            queries,
            spec.evaluation.ndcg_at,
            persistence(spec, frame),
        )
        keys = _written(frame.select(spec.features.key))
        by_shares = isinstance(spec.split, TimeSharesSplit)
        return cls(
            truth=truth,
            blocks=_blocks(spec, frame, queries),
            slices={column: frame[column] for column in spec.evaluation.slices},
            span=first_and_last(frame[spec.features.decision_at]) if by_shares else span,
            digest=hashlib.sha256(keys.encode()).hexdigest(),
            draw=_draw(spec, keys),
        )


def encode_labels(label: LabelSpec, frame: pl.DataFrame) -> np.ndarray:
    """[n] of the rows' labels.

    int64 of 0 and 1 (binary: true or false, or such numbers) or of the place of the class;
    float64 of the value (regression) or the grade of relevance (ranking).

    Raises:
        SpecError: a label is null, or not what the spec declares.
    """
    _require(frame, label.column, "label.column")
    column = frame[label.column]
    numbers = column.cast(pl.Float64, strict=False)
    whole = True
    match label.task:
        case "binary":
            fine = numbers.is_in([0.0, 1.0])
            rule = "true or false, 1 or 0"
        case "multiclass":
            place = {name: index for index, name in enumerate(label.classes)}
            numbers = column.cast(pl.String).replace_strict(
                place, default=None, return_dtype=pl.Float64
            )
            fine = numbers.is_not_null()
            rule = f"one of {list(label.classes)}"
        case "regression":
            fine, whole = numbers.is_finite(), False
            rule = "finite numbers"
        case "language_model":
            fine, whole = numbers.is_finite() & (numbers >= 0), False
            rule = "numbers of bytes"
        case "ranking":
            fine, whole = numbers.is_finite() & (numbers >= 0), False
            rule = "grades of relevance, 0 or more"
        case _:
            assert_never(label.task)
    wrong = column.filter(~fine.fill_null(False))
    if len(wrong):
        raise SpecError(
            f"label.column {label.column!r}: {len(wrong)} of {counted(len(column), 'value')} are"
            f" not {rule}, the first is {quoted(repr(wrong[0]))}; correct label.task,"
            " label.classes or the feature function"
        )
    return (numbers.cast(pl.Int64) if whole else numbers).to_numpy()


def local_day(block: int) -> str:
    """The day that a block of days stands for, as 2024-01-31."""
    return str(date.fromordinal(_EPOCH + block))


def _written(keys: pl.DataFrame) -> str:
    """The names of the columns, and a line for the key of each row, in one order."""
    return keys.sort(keys.columns).write_csv()


def first_and_last(decided: pl.Series) -> tuple[str, str]:
    """The first and the last of some moments, in UTC; as text they have the same order."""
    ends = pl.Series([decided.min(), decided.max()], dtype=decided.dtype)
    first, last = ends.cast(pl.Datetime("us")).to_list()  # naive: the moments in UTC
    return first.isoformat(" "), last.isoformat(" ")


def _draw(spec: PipelineSpec, keys: str) -> HoldoutDraw | None:
    """How the rows were drawn; None where they are cut in time.

    A random split puts a row on the same side each time, by a hash of its key. One of whole
    entities weighs all of them anew when one more comes.
    """
    if not isinstance(spec.split, RandomSplit | StratifiedGroupSplit):
        return None
    drawn = [spec.split.kind, spec.split.holdout, spec.training.seed, list(spec.features.key)]
    drawn += [spec.label.query] if isinstance(spec.split, RandomSplit) else [keys]
    hashes = (hashlib.sha256(key.encode()).hexdigest()[:16] for key in keys.splitlines()[1:])
    return HoldoutDraw(split=digest_of(drawn), sample=tuple(nsmallest(_SAMPLE, hashes)))


def _queries(label: LabelSpec, frame: pl.DataFrame) -> np.ndarray | None:
    if label.query is None:
        return None
    _require(frame, label.query, "label.query")
    return (frame[label.query].rank("dense").cast(pl.Int64) - 1).to_numpy()


def _blocks(spec: PipelineSpec, frame: pl.DataFrame, queries: np.ndarray | None) -> np.ndarray:
    """[n] the local day of the decision (days since 1970), or the row (of a ranking: the query)."""
    if spec.evaluation.block == "entity":
        groups = groups_of(spec.split)
        return frame.select(pl.struct(groups).rank("dense").cast(pl.Int64)).to_series().to_numpy()
    if spec.evaluation.block == "row":
        return np.arange(len(frame)) if queries is None else queries
    _require(frame, spec.features.decision_at, "features.decision_at")
    moment = frame[spec.features.decision_at]
    if not isinstance(moment.dtype, pl.Datetime) or moment.null_count():
        raise SpecError(
            f"features.decision_at {spec.features.decision_at!r} is {moment.dtype} with"
            f" {counted(moment.null_count(), 'null')}; evaluation.block 'day' needs a time in"
            " every row: return one from the feature function, or set evaluation.block to 'row'"
        )
    if moment.dtype.time_zone is None:
        moment = moment.dt.replace_time_zone("UTC")
    local = moment.dt.convert_time_zone(spec.partitions.timezone)
    return local.dt.date().cast(pl.Int32).to_numpy()


def _require(frame: pl.DataFrame, column: str, field: str) -> None:
    if column not in frame.columns:
        raise SpecError(
            f"{field} names {column!r}, which the feature set does not have;"
            f" it has {sorted(frame.columns)}"
        )
