"""A feature that is the label in disguise is found, whatever the task."""

from typing import Any

import polars as pl
import pytest

from ml_assets.assets.training_set import label_leaks
from ml_assets.spec.leaks import LeakFinding
from ml_assets.spec.pipeline import LabelSpec, PipelineSpec
from ml_assets.spec.training import Task
from ml_assets_tests.assets.training_set.split_leaks.labelled_rows import (
    CLASSES,
    FEATURES,
    NAMES,
    WEEK,
    Rows,
    changed,
    examine,
    in_parts,
    labelled,
    the_answer,
)


def find_proxies(rows: Rows, *more: Any) -> LeakFinding:
    return label_leaks.find_proxies({n: in_parts(f) for n, f in rows.items()}, *more)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "ranking"])
def test_a_label_in_disguise_is_found_and_a_good_feature_is_not(
    task: Task, spec: PipelineSpec
) -> None:
    classes = CLASSES if task == "multiclass" else ()
    label = LabelSpec(
        column="y", task=task, classes=classes, query="q" if task == "ranking" else None
    )

    def proxies(strength: float) -> LeakFinding:
        rows: Rows = {name: labelled(task, strength, n) for n, name in enumerate(NAMES)}
        return find_proxies(rows, FEATURES, label, spec.leaks.target_proxy, None)

    assert proxies(0.999).named == ("copy",)
    good = proxies(0.0)
    assert good.passed
    assert good.value is not None
    assert 0.3 < good.value < good.bound


def test_a_name_for_each_row_tells_nothing_that_lasts(spec: PipelineSpec) -> None:
    """Two thousand words, learned by heart, would tell the training rows nearly all."""
    label = LabelSpec(column="y", task="binary")
    rows: Rows = {name: labelled("binary", 0.5, n).drop("copy") for n, name in enumerate(NAMES)}
    features = FEATURES.model_copy(update={"numeric": ("noise",)})
    found = find_proxies(rows, features, label, spec.leaks.target_proxy, None)
    assert found.value is not None
    assert found.value < 0.55


def test_a_missing_value_can_be_the_answer(spec: PipelineSpec) -> None:
    label = LabelSpec(column="y", task="binary")
    gone = pl.when(~pl.col("y")).then(pl.col("noise"))
    rows: Rows = {
        n: labelled("binary", 0.0, i).with_columns(noise=gone) for i, n in enumerate(NAMES)
    }
    assert find_proxies(rows, FEATURES, label, spec.leaks.target_proxy, None).named == ("noise",)


def test_too_few_rows_of_a_class_are_not_judged(spec: PipelineSpec, sound: Rows) -> None:
    rare = changed(the_answer(sound), "validation", late=pl.int_range(pl.len()) < 5)
    found = examine(rare, spec, WEEK)[3]
    assert found.passed
    assert found.value is None
    assert "not judged" in found.reason
