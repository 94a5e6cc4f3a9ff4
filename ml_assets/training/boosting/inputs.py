"""The encoded rows and the spec as LightGBM takes them, and each round's random draws."""

import hashlib
from collections.abc import Mapping, Sequence
from math import nextafter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.program import Preprocessing
from ml_assets.spec.training import LightGbm, Task, TrainingSpec
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


def labels(rows: Rows, task: Task) -> NDArray[np.generic]:
    """[rows] as LightGBM takes them: of a ranking, the shares of the gain in whole steps.

    NDCG's gains are divided by the best that the query allows: shares rank as grades do.
    """
    if task != "ranking":
        return rows.label
    return np.rint(rows.label.astype(np.float64) * GAINS)


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
    """A name for each column of the matrix that LightGBM's text format can hold."""
    columns = [c.name for c in (*preprocessing.numeric, *preprocessing.categorical)]
    plain = ["".join(c if c.isascii() and c.isalnum() else "_" for c in name) for name in columns]
    return [f"{number}_{name}" for number, name in enumerate(plain)]


def categorical(preprocessing: Preprocessing) -> Sequence[int]:
    """The places of the columns that hold codes."""
    first = len(preprocessing.numeric)
    return range(first, first + len(preprocessing.categorical))


GAINS = 10_000
"""Steps in which LightGBM, whose relevance is a whole number, is told a row's share of the gain."""

OBJECTIVES: Mapping[Task, Mapping[str, Any]] = {
    "binary": {"objective": "binary", "metric": "binary_logloss"},
    "multiclass": {"objective": "multiclass", "metric": "multi_logloss"},
    "regression": {"objective": "regression", "metric": "l2"},
    "ranking": {
        "objective": "lambdarank",
        "metric": "ndcg",
        "eval_at": [10],
        "label_gain": [*range(GAINS + 1)],
    },
}
"""The objective that LightGBM minimizes for a task, and its metric on the validation split."""


def parameters(
    model: LightGbm, training: TrainingSpec, task: Task, classes: Sequence[str], threads: int
) -> dict[str, Any]:
    """LightGBM's parameters; with the draws of each round, they decide the trees to the bit."""
    chosen: dict[str, Any] = {
        **OBJECTIVES[task],
        "learning_rate": model.learning_rate,
        "num_leaves": model.num_leaves,
        "max_depth": model.max_depth or -1,
        "min_child_samples": model.min_child_samples,
        "feature_fraction": model.feature_fraction,
        "lambda_l2": model.lambda_l2,
        "max_bin": model.max_bin,
        "data_random_seed": training.seed % 2**31,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": threads,
        "verbosity": -1,
    }
    if task == "multiclass":
        chosen["num_class"] = len(classes)
    return chosen


def draws(model: LightGbm, seed: int, round_number: int) -> dict[str, Any]:
    """The seeds of one round: its draws depend on nothing that was drawn before.

    So a training that goes on from a checkpoint grows the trees that it would have grown. LightGBM
    takes up a seed where it changed, and that of the rows where their share changed: neighbouring
    rounds differ in the last bit of both, and training begins with those of the round before.
    """
    odd = round_number % 2
    chosen: dict[str, Any] = {"feature_fraction_seed": _seed(seed, round_number, "features", odd)}
    if model.bagging_fraction < 1:
        share = model.bagging_fraction
        chosen["bagging_freq"] = 1
        chosen["bagging_fraction"] = nextafter(share, 0.0) if odd else share
        chosen["bagging_seed"] = _seed(seed, round_number, "rows", odd)
    return chosen


def _seed(seed: int, round_number: int, of: str, odd: int) -> int:
    """31 bits, the last of them given."""
    digest = hashlib.sha256(f"{seed} {round_number} {of}".encode()).digest()
    return int.from_bytes(digest[:4]) >> 2 << 1 | odd
