"""Turns columns into arrays, before and after fitting on the training split."""

import math
from collections.abc import Sequence
from typing import assert_never

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.errors import SpecError, counted, quoted
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training_program import Preprocessing
from ml_assets.store.row_encoding import Encoder, pack

HIGHEST_GRADE = 32.0
"""A gain is 2^grade - 1: a larger grade is a mistaken scale."""


def number_arrays(
    frame: pl.DataFrame, columns: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """[rows, n] float64, NaN where there is no number; and which are null, see ``ShardFiles``."""
    null = float("nan")
    numbers = frame.select(pl.col(name).cast(pl.Float64).fill_null(null) for name in columns)
    missing = frame.select(pl.col(name).is_null() for name in columns)
    packed = pack(np.ascontiguousarray(_array(missing, len(frame)), dtype=np.bool_))
    return np.ascontiguousarray(_array(numbers, len(frame)), dtype=np.float64), packed


def word_arrays(
    frame: pl.DataFrame, columns: Sequence[str]
) -> tuple[NDArray[np.int32], list[list[str]]]:
    """[rows, c] int32 the place of each word plus 1, 0 is null; and each column's words, sorted."""
    words = [frame[name].drop_nulls().unique().sort().to_list() for name in columns]
    places = np.zeros((len(frame), len(words)), np.int32)
    for column, (name, own) in enumerate(zip(columns, words, strict=True)):
        if own:
            codes = list(range(1, len(own) + 1))
            found = frame[name].replace_strict(own, codes, default=0, return_dtype=pl.Int32)
            places[:, column] = found.fill_null(0).to_numpy()
    return places, words


def encode_rows(
    frame: pl.DataFrame, preprocessing: Preprocessing
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Numeric [rows, n + flags] float32 and categorical [rows, c] int32, as a model reads them."""
    encoder = Encoder(preprocessing)
    values, missing = number_arrays(frame, [column.name for column in preprocessing.numeric])
    places, words = word_arrays(frame, [column.name for column in preprocessing.categorical])
    codes = encoder.codes(words)
    return encoder.numeric(values, missing), codes[np.arange(places.shape[1]), places]


def decode_rows(
    numeric: NDArray[np.float32], categorical: NDArray[np.int32], preprocessing: Preprocessing
) -> pl.DataFrame:
    """Return what a person reads, from what the network reads: the way back of ``encode_rows``.

    A null comes back as null where the training split had nulls in its column, else as the mean; a
    value beyond the clip as the clip; a word never seen as null.
    """
    columns = len(preprocessing.numeric)
    flags = {name: columns + place for place, name in enumerate(preprocessing.null_flags)}
    decoded: dict[str, list[float | str | None]] = {}
    for place, column in enumerate(preprocessing.numeric):
        values = numeric[:, place].astype(np.float64) * column.std + column.mean
        missing = numeric[:, flags[column.name]] > 0.5 if column.name in flags else values != values
        decoded[column.name] = [
            None if gone else float(value) for value, gone in zip(values, missing, strict=True)
        ]
    for place, words in enumerate(preprocessing.categorical):
        codes = categorical[:, place]
        decoded[words.name] = [words.vocabulary[code - 1] if code else None for code in codes]
    return pl.DataFrame(decoded)


def label_array(frame: pl.DataFrame, label: LabelSpec) -> NDArray[np.generic]:
    """Return what the program learns, [rows]; see ``ShardFiles`` for what it is of each task.

    Raises:
        SpecError: a label is not what the spec declares.
    """
    match label.task:
        case "binary":
            return _binary(frame[label.column])
        case "multiclass":
            return _classes(frame[label.column], label)
        case "regression" | "language_model":
            return _numbers(frame[label.column])
        case "ranking":
            return _shares_of_gain(frame, label)
        case _:
            assert_never(label.task)


def query_starts(frame: pl.DataFrame, label: LabelSpec) -> NDArray[np.int64]:
    """[queries + 1] where the rows of each query begin, and where the last one ends.

    The rows of a query lie together: ``frame`` is in the order of its queries.
    """
    lengths = frame[str(label.query)].rle().struct.field("len").to_numpy()
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _binary(column: pl.Series) -> NDArray[np.float32]:
    numbers = column.cast(pl.Float32, strict=False)
    wrong = column.filter(~numbers.is_in([0.0, 1.0]).fill_null(False))
    if len(wrong):
        raise SpecError(
            f"The binary label {column.name!r} holds {quoted(wrong.unique().sort().to_list()[:5])};"
            " expected true and false, or 1 and 0."
        )
    return numbers.to_numpy().astype(np.float32)


def _classes(column: pl.Series, label: LabelSpec) -> NDArray[np.int64]:
    unknown = sorted(set(column.cast(pl.String).unique().to_list()) - set(label.classes))
    if unknown:
        raise SpecError(
            f"The label {column.name!r} holds {quoted(unknown)}, which label.classes lacks."
        )
    places = column.cast(pl.String).replace_strict(
        list(label.classes), list(range(len(label.classes))), return_dtype=pl.Int64
    )
    return places.to_numpy().astype(np.int64)


def _shares_of_gain(frame: pl.DataFrame, label: LabelSpec) -> NDArray[np.float32]:
    """Each row's share of its query's gain (2^grade - 1); 0 where the query has no relevant row."""
    gains = 2.0 ** _numbers(frame[label.column], lowest=0.0, highest=HIGHEST_GRADE) - 1
    starts = query_starts(frame, label)
    totals = np.repeat(np.add.reduceat(gains, starts[:-1]), np.diff(starts))
    return np.divide(gains, totals, out=np.zeros_like(gains), where=totals > 0).astype(np.float32)


def _numbers(
    column: pl.Series, lowest: float = -math.inf, highest: float = math.inf
) -> NDArray[np.float64]:
    """[rows] the values of a numeric label.

    Raises:
        SpecError: it is no number, not finite, or outside the range.
    """
    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        raise SpecError(
            f"The label {column.name!r} has type {column.dtype}; its task needs a number."
            " Cast it in the feature function, or correct label.task."
        )
    values = column.cast(pl.Float64).to_numpy()
    wrong = ~(np.isfinite(values) & (values >= lowest) & (values <= highest))
    if wrong.any():
        rule = "finite" if lowest == -math.inf else f"between {lowest:g} and {highest:g}"
        raise SpecError(
            f"The label {column.name!r}: {wrong.sum()} of {counted(len(values), 'value')} are not"
            f" {rule}, the first is {quoted(values[wrong][0])}. Correct them, or return null"
            " where there is no outcome."
        )
    return values


def _array(frame: pl.DataFrame, rows: int) -> NDArray[np.generic]:
    return frame.to_numpy() if frame.width else np.zeros((rows, 0))
