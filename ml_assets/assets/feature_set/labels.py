"""The labels of feature rows: looked up from the future, and summarized.

A label from the future is the value of a column at the same entity's row, ``label.ahead`` later. A
partition holds the rows whose outcomes fall into it, decided that long before. So every partition
has its labels as soon as it is there, and none waits for the next.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import polars as pl

from ml_assets.errors import SpecError
from ml_assets.spec.pipeline import LabelSpec, PipelineSpec
from ml_assets.spec.training import Task
from ml_assets.spec.window import Window
from ml_assets.store.pipeline_context import Pipeline

_LABEL_SUMMARY: Mapping[Task, str | None] = {
    "binary": "label_rate",
    "multiclass": None,
    "regression": "label_mean",
    "ranking": "label_mean",
    "language_model": "label_mean",
}
"""What the mean of the labels is called; classes have none."""


def deciding(window: Window, label: LabelSpec, *, unknown: bool = False) -> Window:
    """The span of the decisions, and of their outcomes, that a partition's rows are made of.

    Args:
        unknown: also what is decided in it and comes out after it: rows that are predicted.
    """
    if label.ahead is None or window.start is None or window.end is None:
        return window
    end = window.end + (label.ahead if unknown else timedelta(0))
    return replace(window, start=window.start - label.ahead, end=end)


def with_outcomes(rows: pl.LazyFrame, spec: PipelineSpec, window: Window) -> pl.LazyFrame:
    """The rows whose outcomes fall into the window, with the label; null where it is not known.

    Args:
        rows: what the feature function returned for the window that ``deciding`` gave.

    Raises:
        SpecError: a column that the label is made of is missing.
    """
    label, decided = spec.label, spec.features.decision_at
    if label.ahead is None or label.of is None:
        return rows
    names = rows.collect_schema().names()
    missing = [name for name in (*spec.features.key, label.of) if name not in names]
    if missing:
        raise SpecError(
            f"The feature function's rows lack {missing}: the label {label.column!r} is the value"
            f" of {label.of!r} in the row {label.ahead} later. Return them."
        )
    outcome = pl.col(label.of).alias(label.column)
    at = (pl.col(decided) - label.ahead).alias(decided)
    others = [name for name in spec.features.key if name != decided]
    later = rows.select(*others, at, outcome).unique([*others, decided], keep="first")
    known = rows.drop(label.column, strict=False).join(
        later, on=[*others, decided], how="left", maintain_order="left"
    )
    return known if window.end is None else known.filter(pl.col(decided) < window.end - label.ahead)


def label_rate(rows: pl.LazyFrame, pipeline: Pipeline) -> dict[str, float]:
    """Share of positives (of a number: the mean) of the labels, and the share of rows without."""
    label = rows.select(pipeline.spec.label.column).collect().to_series()
    rates = {"unlabelled_share": label.null_count() / max(1, len(label))}
    name = _LABEL_SUMMARY[pipeline.spec.label.task]
    if name and label.count():
        rates[name] = float(label.cast(pl.Float64, strict=False).mean() or 0.0)  # pyright: ignore[reportArgumentType]  a float column's mean is a float
    return rates


def class_shares(rows: pl.LazyFrame, pipeline: Pipeline) -> dict[str, float]:
    """Class -> its share of the labelled rows (multiclass)."""
    labels = rows.select(pl.col(pipeline.spec.label.column).drop_nulls().cast(pl.String))
    label = labels.collect().to_series()
    return {
        name: int((label == name).sum()) / max(1, len(label))
        for name in pipeline.spec.label.classes
    }
