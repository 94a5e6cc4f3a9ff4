"""A training set of any size, shaped like the flights: 35 numbers, six categories, two classes."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training import ModelSpec, TrainingSpec
from ml_assets.spec.training_program import Ref, TrainOutput, TrainRequest, World
from ml_assets_tests.worlds.shards import write_shards

NUMERIC = tuple(f"x{number}" for number in range(35))
CATEGORICAL = tuple(f"c{number}" for number in range(6))
FEATURES = FeaturesSpec(
    function="features.py:build",
    key=("k",),
    decision_at="at",
    numeric=NUMERIC,
    categorical=CATEGORICAL,
)
LABEL = LabelSpec(column="y", task="binary")
_WORDS = 100


def training_set(rows: int, folder: Path) -> Ref:
    """``rows`` to train on and a tenth as many to validate; the label leans on the first number."""
    splits = {
        "train": _frame(rows, 0),
        "validation": _frame(rows // 10, rows),
        "holdout": _frame(10, 2 * rows),
    }
    return write_shards(splits, FEATURES, LABEL, folder)  # pyright: ignore[reportArgumentType]


def _frame(rows: int, first: int) -> pl.LazyFrame:
    draw = np.random.default_rng(first)
    numbers = {name: draw.normal(size=rows).astype(np.float32) for name in NUMERIC}
    words = {name: draw.integers(0, _WORDS, rows).astype(str) for name in CATEGORICAL}
    late = draw.random(rows) < 1 / (1 + np.exp(1.2 - numbers["x0"]))
    key = np.arange(first, first + rows)
    at = pl.repeat(datetime(2024, 1, 1, tzinfo=UTC), rows, eager=True)
    return pl.DataFrame({"k": key, "at": at, **numbers, **words, "y": late}).lazy()


def train_request(
    folder: Path, data: Ref, model: ModelSpec, training: TrainingSpec
) -> TrainRequest:
    """What the launcher would ask of the program, with everything it writes below ``folder``."""
    output = TrainOutput(
        checkpoints=str(folder / "checkpoints"),
        model=str(folder / "model"),
        events=str(folder / "events.jsonl"),
        result=str(folder / "result.json"),
    )
    return TrainRequest(
        session="session",
        attempt=1,
        model=model,
        training=training,
        data=data,
        resume=None,
        output=output,
        world=World(),
    )
