"""Summarizes the labels of a feature table: their mean, and the share of each class."""

from collections.abc import Mapping

import polars as pl

from ml_assets.spec.training import Task
from ml_assets.store.pipeline_context import Pipeline

_LABEL_SUMMARY: Mapping[Task, str | None] = {
    "binary": "label_rate",
    "multiclass": None,
    "regression": "label_mean",
    "ranking": "label_mean",
    "language_model": "label_mean",
}
"""What the mean of the labels is called; classes have none."""


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
