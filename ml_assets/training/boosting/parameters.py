"""From the spec to LightGBM's parameters, and each round's random draws."""

import hashlib
from collections.abc import Mapping, Sequence
from math import nextafter
from typing import Any

from ml_assets.spec.training import LightGbm, Task, TrainingSpec

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
"""What LightGBM minimizes for a task, and what it measures on the validation split."""


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
