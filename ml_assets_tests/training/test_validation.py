"""What the validation split says at an evaluation: the numbers that the report would give, too."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.evaluation_report.metrics.metrics import point_metrics
from ml_assets.assets.evaluation_report.rows import Truth
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.program import Ref
from ml_assets.spec.program.events import Metrics
from ml_assets.spec.training import Task, validation_metrics
from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets_tests.training.conftest import (
    FEATURES,
    LABEL,
    SPEC,
    Attempt,
    Sessions,
    frame,
    regression_set,
)
from ml_assets_tests.training.test_program import scored
from ml_assets_tests.worlds.shards import write_shards

CLASSES = ("high", "low", "middle")
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


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_each_metric_is_what_the_report_makes_of_the_same_predictions(
    sessions: Sessions, tmp_path: Path, task: Task
) -> None:
    made = {"multiclass": multiclass_set, "regression": regression_set}
    data = made[task](tmp_path / "set") if task in made else sessions.data
    attempt = sessions.attempt(task, procs=1, data=data)
    best = attempt.run_here().best_step
    _, predicted = scored(attempt, tmp_path)
    found = told(attempt)[best]
    assert set(found) == set(validation_metrics(attempt.request.model, task))
    folder, schema = open_set(data)
    labels = SplitArrays(folder, schema, "validation").whole().label
    if schema.label_scale:
        labels = labels * schema.label_scale.std + schema.label_scale.mean
    report = point_metrics(Truth(task, labels, schema.classes), predicted)
    for name, value in found.items():
        of_report = report.get(name.removeprefix("validation_"))  # type: ignore[call-overload]
        if of_report is not None:
            assert value == pytest.approx(of_report, rel=2e-4), name


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
