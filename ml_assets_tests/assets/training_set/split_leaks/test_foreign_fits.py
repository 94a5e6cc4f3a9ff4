"""Statistics that were fitted on other rows than those of training are found."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ml_assets.assets.training_set import shards, split_leaks
from ml_assets.assets.training_set.shards import load_schema
from ml_assets.spec.leaks import LeakFinding
from ml_assets.spec.pipeline import LabelSpec, PipelineSpec
from ml_assets.spec.training import Task
from ml_assets.spec.training_program import Ref, ShardSchema
from ml_assets_tests.assets.training_set.split_leaks.labelled_rows import (
    CLASSES,
    FEATURES,
    NAMES,
    Rows,
    changed,
    in_parts,
    labelled,
)


def find_foreign_fit(schema: ShardSchema, train: pl.DataFrame, label: LabelSpec) -> LeakFinding:
    return split_leaks.find_foreign_fit(schema, in_parts(train), label)


def write_labelled(rows: Rows, *more: Any) -> Ref:
    return shards.write_labelled({n: in_parts(f) for n, f in rows.items()}, *more).ref


def test_statistics_of_the_training_rows_pass_and_those_of_more_rows_do_not(
    sound: Rows, spec: PipelineSpec, tmp_path: Path
) -> None:
    other = changed(sound, "train", load=pl.col("load") + 1, depot=pl.lit("north"))
    ref = write_labelled(sound, spec.features, spec.label, tmp_path)
    assert find_foreign_fit(load_schema(ref), sound["train"], spec.label).passed
    whole: Rows = {**sound, "train": pl.concat([*sound.values()])}
    ref = write_labelled(whole, spec.features, spec.label, tmp_path)
    found = find_foreign_fit(load_schema(ref), sound["train"], spec.label)
    assert not found.passed
    assert set(found.named) == {"load", "docks", "recent_late", "late"}
    ref = write_labelled(other, spec.features, spec.label, tmp_path)
    found = find_foreign_fit(load_schema(ref), sound["train"], spec.label)
    assert set(found.named) == {"load", "depot"}
    assert (
        "['south', 'west'] are in its vocabulary or in the training rows, not in both"
        in found.reason
    )


@pytest.mark.parametrize("value", [80.19, 26.98, 19.99])
def test_a_constant_of_training_is_fitted_on_training(
    sound: Rows, spec: PipelineSpec, tmp_path: Path, value: float
) -> None:
    """The deviation of equal values is rounding, another one for each way to add them up."""
    same = changed(sound, "train", load=pl.lit(value))
    schema = load_schema(write_labelled(same, spec.features, spec.label, tmp_path))
    assert find_foreign_fit(schema, same["train"], spec.label).passed


def test_a_null_flag_of_other_rows_is_found(
    sound: Rows, spec: PipelineSpec, tmp_path: Path
) -> None:
    holes = changed(sound, "train", docks=pl.when(pl.col("docks") > 1).then("docks"))
    ref = write_labelled(holes, spec.features, spec.label, tmp_path)
    filled = holes["train"].with_columns(pl.col("docks").fill_null(strategy="mean"))
    named = find_foreign_fit(load_schema(ref), filled, spec.label).named
    assert named == ("docks",)


@pytest.mark.parametrize("task", ["multiclass", "regression", "ranking"])
def test_the_label_of_every_task_is_counted_again(task: Task, tmp_path: Path) -> None:
    classes = CLASSES if task == "multiclass" else ()
    label = LabelSpec(
        column="y", task=task, classes=classes, query="q" if task == "ranking" else None
    )
    rows: Rows = {
        n: labelled(task, 0.5, i).with_columns(q=pl.int_range(pl.len()) // 9)
        for i, n in enumerate(NAMES)
    }
    schema = load_schema(write_labelled(rows, FEATURES, label, tmp_path))
    assert find_foreign_fit(schema, rows["train"], label).passed
    found = find_foreign_fit(schema, rows["train"].sort("y").head(3000), label)
    assert ("y" in found.named) == (task != "ranking"), "a ranking has no rate and no scale"
