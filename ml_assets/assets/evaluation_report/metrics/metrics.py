"""The metrics of a model on labelled rows, with block-bootstrap intervals, whatever its task.

Each task has a module of its own: ``classification``, ``regression``, ``ranking``, ``language``.
"""

from collections.abc import Mapping
from typing import assert_never

import numpy as np
import polars as pl

from ml_assets.assets.evaluation_report.bootstrap import Resampler, interval
from ml_assets.assets.evaluation_report.metrics.classification import Classified
from ml_assets.assets.evaluation_report.metrics.language import Coded
from ml_assets.assets.evaluation_report.metrics.ranking import Ranked
from ml_assets.assets.evaluation_report.metrics.regression import Estimated
from ml_assets.assets.evaluation_report.rows import Truth
from ml_assets.errors import EvidenceError, counted
from ml_assets.spec.gates import MetricName
from ml_assets.spec.records import Interval, SliceMetrics
from ml_assets.spec.training import outputs_of

SLICE_ROWS = 200
"""A slice of fewer rows says more about chance than about the model."""
SLICE_VALUES = 12
SLICE_SAMPLES = 200
"""Bootstrap draws of a slice: enough for a whisker."""
COMPARED_BY: tuple[MetricName, ...] = ("auc", "accuracy", "r2", "ndcg", "bits_per_byte")
"""The metrics that slices are compared by, with intervals."""


ScoredPredictions = Classified | Estimated | Coded | Ranked
"""Predictions beside what came true. Its units are what has a loss: rows, or queries.

``points``: every metric that is defined on these rows. ``losses``: [units] what the champion gate
compares. ``units``: [units] what is said of the rows (their block, say), of the units. ``draws``:
metric -> [samples] its value on each draw of the units.
"""


def judged(truth: Truth, predictions: np.ndarray) -> ScoredPredictions:
    """Predictions in the form that their task is judged in.

    Args:
        predictions: [n, outputs] (or [n] for one output), in the order of the labels.

    Raises:
        EvidenceError: no rows, or predictions that are none.
    """
    outputs = outputs_of(truth.task, truth.classes)
    shape = predictions.shape if predictions.ndim > 1 else (*predictions.shape, 1)
    if len(shape) != 2 or shape[1] != outputs:
        raise ValueError(f"predictions are {shape}; a {truth.task} model has {outputs} outputs")
    if len(predictions) != len(truth.labels):
        raise ValueError(
            f"{counted(len(predictions), 'prediction')} for {counted(len(truth.labels), 'label')}"
        )
    if not len(predictions):
        raise EvidenceError("the holdout has no rows: there is nothing to judge the model on")
    match truth.task:
        case "binary" | "multiclass":
            return Classified.of(truth, predictions)
        case "regression":
            return Estimated.of(truth, predictions)
        case "language_model":
            return Coded.of(truth, predictions)
        case "ranking":
            return Ranked.of(truth, predictions)
        case _:
            assert_never(truth.task)


def evaluate(
    truth: Truth, predictions: np.ndarray, blocks: np.ndarray, samples: int, seed: int
) -> dict[MetricName, Interval]:
    """Every metric that is defined on these rows, with its 95% interval.

    Args:
        blocks: [n] rows of one block are resampled together.
        samples: bootstrap draws.

    Raises:
        EvidenceError: no rows, or predictions that are none, or no metric is defined.
    """
    model = judged(truth, predictions)
    if len(blocks) != len(truth.labels):
        raise ValueError(f"{counted(len(blocks), 'block')} for {counted(len(truth.labels), 'row')}")
    found = _evaluate(model, blocks, samples, seed)
    if not found:
        raise EvidenceError(
            f"no metric of a {truth.task} model is defined on these"
            f" {counted(len(truth.labels), 'row')}: no query has a relevant row. Make the"
            " holdout longer, or find out whether its labels have arrived"
        )
    return found


def _evaluate(
    model: ScoredPredictions, blocks: np.ndarray, samples: int, seed: int
) -> dict[MetricName, Interval]:
    points = model.points()
    if not points:
        return {}
    draws = model.draws(Resampler(model.units(blocks), samples, seed))
    return {name: interval(value, draws[name]) for name, value in points.items()}


def point_metrics(truth: Truth, predictions: np.ndarray) -> dict[MetricName, float]:
    """The same metrics without intervals: of a baseline, a champion, a slice."""
    return judged(truth, predictions).points()


def slice_metrics(
    truth: Truth,
    predictions: np.ndarray,
    columns: Mapping[str, pl.Series],
    blocks: np.ndarray,
    *,
    seed: int = 0,
    values: int = SLICE_VALUES,
) -> tuple[SliceMetrics, ...]:
    """The metrics of each column's most frequent values, largest first.

    Args:
        columns: name -> [n] values in the order of the rows; null is a value of its own.
        blocks: [n] rows of one block are resampled together, for the intervals.
        values: most values shown for a column.
    """
    found: list[SliceMetrics] = []
    for column, series in columns.items():
        if len(series) != len(truth.labels):
            whole = len(truth.labels)
            raise ValueError(
                f"slice column {column!r} has {counted(len(series), 'row')}, not {whole}"
            )
        text = series.cast(pl.String).fill_null("(none)").to_numpy()
        names, place, rows = np.unique(text, return_inverse=True, return_counts=True)
        largest = sorted(range(len(names)), key=lambda i: (-rows[i], names[i]))[:values]
        for index in largest:
            if rows[index] < SLICE_ROWS:
                continue
            here = place.reshape(-1) == index
            measured = _evaluate(
                judged(truth.of(here), predictions[here]), blocks[here], SLICE_SAMPLES, seed
            )
            found.append(
                SliceMetrics(
                    column=column,
                    value=str(names[index]),
                    rows=int(rows[index]),
                    metrics={str(name): one.value for name, one in measured.items()},
                    intervals={str(n): measured[n] for n in COMPARED_BY if n in measured},
                )
            )
    return tuple(found)
