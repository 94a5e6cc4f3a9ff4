"""A small training set of texts: sentences of a grammar that is quickly learned."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.gpt import Gpt
from ml_assets.spec.label import LabelSpec
from ml_assets.spec.texts import TokensSpec
from ml_assets.spec.training import TrainingSpec
from ml_assets.spec.training_program import Ref
from ml_assets_tests.worlds.shards import write_shards

CONTEXT = 32
FEATURES = FeaturesSpec(
    function="features.py:build",
    key=("k",),
    decision_at="at",
    tokens=TokensSpec(column="text", vocabulary=300, context=CONTEXT),
)
LABEL = LabelSpec(column="bytes", task="language_model")
MODEL = Gpt(family="gpt", width=32, depth=2, heads=2)
SPEC = TrainingSpec(
    epochs=2,
    batch_size=24,
    microbatches=12,
    learning_rate=0.01,
    evaluate_every=5,
    patience=100,
    processes=2,
)
_NAMES, _VERBS = ("red", "blue", "green"), ("sees", "calls", "holds")


def frame(rows: int, first: int) -> pl.LazyFrame:
    """Texts of a few sentences each; the number of the sentence follows from the one before."""
    draw = np.random.default_rng(first)
    texts = []
    for _ in range(rows):
        said = zip(draw.choice(_NAMES, (8, 2)), draw.choice(_VERBS, 8), strict=True)
        lines = [f"{n}: {a} {verb} {b}." for n, ((a, b), verb) in enumerate(said)]
        texts.append("\n".join(lines))
    at = [datetime(2024, 1, 1, tzinfo=UTC)] * rows
    data = pl.LazyFrame({"k": range(first, first + rows), "at": at, "text": texts})
    return data.with_columns(pl.col("text").str.len_bytes().alias("bytes"))


def text_set(folder: Path, texts: int = 160, context: int = CONTEXT) -> Ref:
    """About 10,000 tokens to train on, for 160 texts."""
    splits = {"train": frame(texts, 0), "validation": frame(20, 2000), "holdout": frame(20, 3000)}
    tokens = TokensSpec(column="text", vocabulary=300, context=context)
    features = FEATURES.model_copy(update={"tokens": tokens})
    return write_shards(splits, features, LABEL, folder)  # pyright: ignore[reportArgumentType]
