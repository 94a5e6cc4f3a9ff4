"""Rows of three splits, sound or changed, and labelled in the ways of every task."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from ml_assets.assets.training_set import split_leaks
from ml_assets.assets.training_set.read_split import Part, SplitRows
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.leaks import LeakFinding
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.training import Task
from ml_assets.spec.training_program import Split

Rows = dict[Split, pl.DataFrame]
WEEK = timedelta(weeks=1)
NAMES: tuple[Split, ...] = ("train", "validation", "holdout")
CLASSES = ("low", "middle", "high")


def in_parts(frame: pl.DataFrame) -> SplitRows:
    """The rows in parts of 97: what a guard says must not depend on where they are cut."""
    places = range(0, len(frame), 97)
    return SplitRows(tuple(Part(frame[place : place + 97].lazy()) for place in places))


def examine(
    rows: Mapping[Any, pl.DataFrame], spec: PipelineSpec, embargo: timedelta
) -> tuple[LeakFinding, ...]:
    return split_leaks.examine({n: in_parts(frame) for n, frame in rows.items()}, spec, embargo)


def orders(first: int, last: int) -> pl.DataFrame:
    draw = np.random.default_rng(first)
    count = 240 * (last - first)
    load = draw.uniform(1, 99, count)
    seconds = draw.integers(first * 7 * 86400, last * 7 * 86400, count)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return pl.DataFrame(
        {
            "order": np.arange(count) + first * 10_000,
            "ordered_at": [start + timedelta(seconds=int(s)) for s in seconds],
            "late": draw.random(count) < 0.2 + 0.4 * (load > 70),
            "load": load,
            "docks": draw.integers(1, 9, count).astype(np.float64),
            "recent_late": draw.normal(0.3, 0.02, count),
            "depot": draw.choice(["north", "south", "west"], count),
        }
    ).with_columns(pl.col("ordered_at").cast(pl.Datetime("us", "UTC")))


def changed(rows: Mapping[Any, pl.DataFrame], name: Split, **columns: pl.Expr) -> Rows:
    return {**rows, name: rows[name].with_columns(**columns)}


def the_answer(rows: Rows) -> Rows:
    told = pl.when("late").then(pl.col("load") + 200).otherwise("load")
    return {name: frame.with_columns(load=told) for name, frame in rows.items()}


FEATURES = FeaturesSpec(
    function="f.py:b",
    key=("k",),
    decision_at="at",
    numeric=("noise", "copy"),
    categorical=("word",),
)


def labelled(task: Task, strength: float, seed: int) -> pl.DataFrame:
    """A label, a feature that is the label but for noise, and one that says nothing."""
    draw = np.random.default_rng(seed)
    hidden = draw.lognormal(0, 1.5, 4000)
    third = np.digitize(hidden, np.quantile(hidden, [1 / 3, 2 / 3]))
    label = {
        "binary": hidden > 1,
        "multiclass": np.array(CLASSES)[third],
        "regression": hidden,
        "ranking": third,
    }[task]
    blurred = np.exp(np.log(hidden) + draw.normal(0, 1 - strength, 4000))
    word = [f"w{n}" for n in draw.integers(0, 2000, 4000)]
    return pl.DataFrame(
        {"y": label, "noise": draw.normal(size=4000), "copy": blurred, "word": word}
    )
