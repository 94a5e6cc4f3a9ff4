"""From columns to numbers: fitted on the training split, applied the same way everywhere."""

import math
from typing import assert_never

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.errors import SpecError, quoted
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.program import CategoricalColumn, LabelScale, NumericColumn, Preprocessing

CLIP = 8.0
HIGHEST_GRADE = 32.0
"""A gain is 2^grade - 1: a larger grade is a mistaken scale."""


def fit_preprocessing(train: pl.DataFrame, features: FeaturesSpec) -> Preprocessing:
    """Means, deviations, null flags and vocabularies of the training split."""
    return Preprocessing(
        numeric=tuple(_fit_numeric(train, name) for name in features.numeric),
        null_flags=tuple(name for name in features.numeric if train[name].null_count()),
        categorical=tuple(
            CategoricalColumn(
                name=name, vocabulary=tuple(train[name].drop_nulls().unique().sort().to_list())
            )
            for name in features.categorical
        ),
    )


def encode_rows(
    frame: pl.DataFrame, preprocessing: Preprocessing
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Numeric [rows, n + flags] float32 and categorical [rows, c] int32."""
    numeric = [
        ((pl.col(c.name) - c.mean) / c.std).clip(-CLIP, CLIP).fill_nan(None).fill_null(0.0)
        for c in preprocessing.numeric
    ]
    flags = [
        pl.col(name).is_null().cast(pl.Float64).alias(f"{name}__null")
        for name in preprocessing.null_flags
    ]
    numbers = frame.select(*numeric, *flags)
    codes = frame.select(
        pl.col(c.name)
        .replace_strict(
            list(c.vocabulary),
            list(range(1, len(c.vocabulary) + 1)),
            default=0,
            return_dtype=pl.Int32,
        )
        .fill_null(0)
        for c in preprocessing.categorical
    )
    return (
        np.ascontiguousarray(_array(numbers, len(frame)), dtype=np.float32),
        np.ascontiguousarray(_array(codes, len(frame)), dtype=np.int32),
    )


def decode_rows(
    numeric: NDArray[np.float32], categorical: NDArray[np.int32], preprocessing: Preprocessing
) -> pl.DataFrame:
    """What a person reads, from what the network reads: the way back of ``encode_rows``.

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


def encode_labels(
    frame: pl.DataFrame, label: LabelSpec, scale: LabelScale | None
) -> NDArray[np.float32] | NDArray[np.int64]:
    """What the program learns, [rows]; see ``Shard`` for what it is of each task.

    Args:
        scale: of a regression label.

    Raises:
        SpecError: a label is not what the spec declares.
    """
    match label.task:
        case "binary":
            return _encode_binary(frame[label.column])
        case "multiclass":
            return _encode_classes(frame[label.column], label)
        case "regression":
            assert scale is not None
            values = _numbers(frame[label.column])
            return ((values - scale.mean) / scale.std).astype(np.float32)
        case "ranking":
            return _shares_of_gain(frame, label)
        case _:
            assert_never(label.task)


def label_rate(frame: pl.DataFrame, label: LabelSpec) -> tuple[float, ...]:
    """Binary: the share of positives. Multiclass: of each class. A number has no rate: empty."""
    match label.task:
        case "binary":
            return (float(_encode_binary(frame[label.column]).mean()),)
        case "multiclass":
            places = _encode_classes(frame[label.column], label)
            counts = np.bincount(places, minlength=len(label.classes))
            return tuple(float(share) for share in counts / len(places))
        case "regression" | "ranking":
            return ()
        case _:
            assert_never(label.task)


def fit_label_scale(train: pl.DataFrame, label: LabelSpec) -> LabelScale | None:
    """Mean and deviation of a regression label in the training split; None for other tasks."""
    match label.task:
        case "regression":
            values = _numbers(train[label.column])
            std = float(values.std())
            return LabelScale(mean=float(values.mean()), std=std if std > 0 else 1.0)
        case "binary" | "multiclass" | "ranking":
            return None
        case _:
            assert_never(label.task)


def query_starts(frame: pl.DataFrame, label: LabelSpec) -> NDArray[np.int64]:
    """[queries + 1] where the rows of each query begin, and where the last one ends.

    The rows of a query lie together: ``frame`` is in the order of its queries.
    """
    lengths = frame[str(label.query)].rle().struct.field("len").to_numpy()
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _encode_binary(column: pl.Series) -> NDArray[np.float32]:
    numbers = column.cast(pl.Float32)
    if not numbers.is_in([0.0, 1.0]).all():
        raise SpecError(
            f"The binary label {column.name!r} holds {quoted(sorted(set(column.to_list()))[:5])};"
            " expected true and false, or 1 and 0."
        )
    return numbers.to_numpy().astype(np.float32)


def _encode_classes(column: pl.Series, label: LabelSpec) -> NDArray[np.int64]:
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
            f"The label {column.name!r}: {wrong.sum()} of {len(values)} values are not {rule}, the"
            f" first is {quoted(values[wrong][0])}. Correct them, or return null where there is no"
            " outcome."
        )
    return values


def _fit_numeric(train: pl.DataFrame, name: str) -> NumericColumn:
    values = train[name].drop_nulls().drop_nans()
    mean = float(values.mean() or 0.0)  # pyright: ignore[reportArgumentType]  a float column's mean is a float
    std = float(values.std() or 0.0)  # pyright: ignore[reportArgumentType]  likewise
    return NumericColumn(name=name, mean=mean, std=std if std > 0 else 1.0)


def _array(frame: pl.DataFrame, rows: int) -> NDArray[np.generic]:
    return frame.to_numpy() if frame.width else np.zeros((rows, 0))
