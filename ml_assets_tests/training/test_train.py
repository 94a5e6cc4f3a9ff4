"""What the validation split says at an evaluation: the numbers that the report would give, too."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.evaluation_report.metrics.metrics import point_metrics
from ml_assets.assets.evaluation_report.rows import Truth, encode_labels
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training import LightGbm, Task, TrainingSpec, XGBoost, validation_metrics
from ml_assets.spec.training_program import Ref
from ml_assets.spec.training_program.events import Metrics
from ml_assets_tests.training.conftest import (
    FEATURES,
    LABEL,
    SPEC,
    Attempt,
    Sessions,
    frame,
    ranking_set,
    regression_set,
)
from ml_assets_tests.training.test_program import scored
from ml_assets_tests.worlds.shards import shard_of, write_shards

_BY_ROUND = TrainingSpec(evaluate_every=5)
CLASSES = ("high", "low", "middle")
TREES: Mapping[str, Any] = {
    "lightgbm": {"model": LightGbm(family="lightgbm", rounds=10), "spec": _BY_ROUND},
    "xgboost": {"model": XGBoost(family="xgboost", rounds=10), "spec": _BY_ROUND},
}
SPANS = [("train", 600, 0), ("validation", 300, 2000), ("holdout", 9, 1)]


def multiclass_set(folder: Path) -> Ref:
    """The label says where x lies, roughly."""
    seen = pl.col("x") + pl.col("z").fill_null(0) * 0.1
    named = pl.when(seen > 0.7).then(pl.lit("high")).when(seen < -0.7).then(pl.lit("low"))
    label = named.otherwise(pl.lit("middle")).alias("y")
    splits = {name: frame(rows, first).with_columns(label) for name, rows, first in SPANS}
    asked = LabelSpec(column="y", task="multiclass", classes=CLASSES)
    return write_shards(splits, FEATURES, asked, folder)  # pyright: ignore[reportArgumentType]


def told(attempt: Attempt) -> dict[int, dict[str, float]]:
    """Step of each evaluation -> what it told of the validation split."""
    judged = [one for one in attempt.events() if isinstance(one, Metrics)]
    return {
        one.step: {name: v for name, v in one.metrics.items() if name.startswith("validation_")}
        for one in judged
        if "validation_loss" in one.metrics
    }


SHORT = {("network", "multiclass"), ("lightgbm", "ranking"), ("xgboost", "regression")}
CASES = [
    pytest.param(family, task, marks=() if (family, task) in SHORT else pytest.mark.daemon)
    for family in ("network", "lightgbm", "xgboost")
    for task in ("binary", "multiclass", "regression", "ranking")
    if (family, task) != ("xgboost", "ranking")  # XGBoost ranks nothing
]


@pytest.mark.parametrize(("family", "task"), CASES)
def test_each_metric_is_what_the_report_makes_of_the_same_predictions(
    sessions: Sessions, tmp_path: Path, task: Task, family: str
) -> None:
    made = {"multiclass": multiclass_set, "regression": regression_set, "ranking": ranking_set}
    data = made[task](tmp_path / "set") if task in made else sessions.data
    more = TREES.get(family, {})
    attempt = sessions.attempt(task, procs=1, data=data, **more)
    if more:
        assert attempt.run() == 0
    best = attempt.result().best_step if more else attempt.run_here().best_step
    _, predicted = scored(attempt, tmp_path)
    found = told(attempt)[best]
    assert set(found) == set(validation_metrics(task))
    rows = pl.read_parquet(shard_of(data, "validation") / "rows.parquet")
    classes, query = CLASSES if task == "multiclass" else (), "q" if task == "ranking" else None
    labels = encode_labels(LabelSpec(column="y", task=task, classes=classes, query=query), rows)
    queries = rows["q"].to_numpy() if task == "ranking" else None
    report = point_metrics(Truth(task, labels, classes, queries), predicted)
    for name, value in found.items():
        of_report = report.get(name.removeprefix("validation_"))  # type: ignore[call-overload]
        if of_report is not None:
            assert value == pytest.approx(of_report, rel=2e-4), name
    assert task != "ranking" or found["validation_ndcg"] > 0.8


def test_trees_that_weigh_a_class_are_judged_as_they_are_calibrated(sessions: Sessions) -> None:
    spec = TREES["lightgbm"]["spec"]
    weighed = spec.model_copy(update={"positive_weight": 20.0})
    plain, heavy = (
        sessions.attempt(name, procs=1, **{**TREES["lightgbm"], "spec": one})
        for name, one in (("plain", spec), ("heavy", weighed))
    )
    assert plain.run() == heavy.run() == 0
    wanted = told(plain)[10]["validation_accuracy"]
    assert told(heavy)[10]["validation_accuracy"] == pytest.approx(wanted, abs=0.1)


@pytest.mark.daemon
def test_the_metrics_are_the_same_on_any_number_of_processes(
    sessions: Sessions, whole: Attempt
) -> None:
    alone = sessions.attempt("alone", procs=1)
    alone.run_here()
    one, two = told(alone), told(whole)
    assert one.keys() == two.keys()
    for step, found in one.items():
        assert found == pytest.approx(two[step], rel=1e-6)


def test_where_the_split_has_one_class_no_order_is_told(sessions: Sessions, tmp_path: Path) -> None:
    splits = {name: frame(rows, first) for name, rows, first in SPANS}
    splits["validation"] = splits["validation"].with_columns(pl.lit(True).alias("y"))
    data = write_shards(splits, FEATURES, LABEL, tmp_path / "one")  # pyright: ignore[reportArgumentType]
    spec = SPEC.model_copy(update={"epochs": 1})
    attempt = sessions.attempt("one_class", procs=1, data=data, spec=spec)
    attempt.run_here()
    for found in told(attempt).values():
        assert "validation_auc" not in found and "validation_accuracy" in found
        assert all(np.isfinite(value) for value in found.values())
