"""From columns to numbers: fitted on the training split, applied the same way everywhere."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.errors import SpecError
from ml_assets.spec.pipeline import FeaturesSpec, LabelSpec
from ml_assets.spec.program import CategoricalColumn, NumericColumn, Preprocessing

CLIP = 8.0


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


def encode_labels(frame: pl.DataFrame, label: LabelSpec) -> NDArray[np.float32] | NDArray[np.int64]:
    """Binary: 0 or 1, float32. Multiclass: the place of the class, int64.

    Raises:
        SpecError: a label is none of the declared ones.
    """
    column = frame[label.column]
    if label.task == "binary":
        numbers = column.cast(pl.Float32)
        if not numbers.is_in([0.0, 1.0]).all():
            raise SpecError(
                f"The binary label {label.column!r} holds {sorted(set(column.to_list()))[:5]};"
                " expected true and false, or 1 and 0."
            )
        return numbers.to_numpy().astype(np.float32)
    unknown = sorted(set(column.cast(pl.String).unique().to_list()) - set(label.classes))
    if unknown:
        raise SpecError(f"The label {label.column!r} holds {unknown}, which label.classes lacks.")
    places = column.cast(pl.String).replace_strict(
        list(label.classes), list(range(len(label.classes))), return_dtype=pl.Int64
    )
    return places.to_numpy().astype(np.int64)


def label_rate(frame: pl.DataFrame, label: LabelSpec) -> tuple[float, ...]:
    """Binary: the share of positives. Multiclass: the share of each class."""
    labels = encode_labels(frame, label)
    if label.task == "binary":
        return (float(labels.mean()),)
    counts = np.bincount(labels.astype(np.int64), minlength=len(label.classes))
    return tuple(float(share) for share in counts / len(labels))


def _fit_numeric(train: pl.DataFrame, name: str) -> NumericColumn:
    values = train[name].drop_nulls().drop_nans()
    mean = float(values.mean() or 0.0)  # pyright: ignore[reportArgumentType]  a float column's mean is a float
    std = float(values.std() or 0.0)  # pyright: ignore[reportArgumentType]  likewise
    return NumericColumn(name=name, mean=mean, std=std if std > 0 else 1.0)


def _array(frame: pl.DataFrame, rows: int) -> NDArray[np.generic]:
    return frame.to_numpy() if frame.width else np.zeros((rows, 0))
