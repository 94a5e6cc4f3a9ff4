"""The encoded rows as boosted trees take them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.program import Preprocessing
from ml_assets.spec.training import Task, TrainingSpec
from ml_assets.training.rows.arrays import Rows


def matrix(rows: Rows, preprocessing: Preprocessing) -> NDArray[np.float32]:
    """[n, numeric + categorical] float32: numbers, NaN for a null that has a flag; then codes.

    The trees send a missing number to the better side, so that the flags say nothing more. A code
    is exact in float32 up to 16 million words.
    """
    numbers = len(preprocessing.numeric)
    values = np.hstack([rows.numeric[:, :numbers], rows.categorical]).astype(np.float32)
    place = {column.name: number for number, column in enumerate(preprocessing.numeric)}
    for flag, name in enumerate(preprocessing.null_flags, start=numbers):
        values[rows.numeric[:, flag].astype(bool), place[name]] = np.nan
    return values


def row_weights(rows: Rows, task: Task, training: TrainingSpec) -> NDArray[np.float64] | None:
    """[rows] what each row of a class weighs; None: all the same."""
    if task == "binary" and training.positive_weight != 1:
        return np.where(rows.label.astype(np.float64) > 0.5, training.positive_weight, 1.0)
    if task == "multiclass" and training.class_weights:
        return np.array(training.class_weights)[rows.label.astype(np.int64)]
    return None


def group_sizes(rows: Rows) -> NDArray[np.int64] | None:
    """Ranking: [queries] how many rows each has; else None."""
    return None if rows.starts is None else np.diff(rows.starts)


def names(preprocessing: Preprocessing) -> list[str]:
    """A name for each column of the matrix that any model file can hold."""
    columns = [c.name for c in (*preprocessing.numeric, *preprocessing.categorical)]
    plain = ["".join(c if c.isascii() and c.isalnum() else "_" for c in name) for name in columns]
    return [f"{number}_{name}" for number, name in enumerate(plain)]


def categorical(preprocessing: Preprocessing) -> Sequence[int]:
    """The places of the columns that hold codes."""
    first = len(preprocessing.numeric)
    return range(first, first + len(preprocessing.categorical))
