"""Label suspects: the rows outside training that the model is most wrong about.

A good model is confident that a wrong label is something else, so wrong labels gather where the
loss is highest. So do hard rows: somebody has to look (Northcutt et al., 2021).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from ml_assets.assets.evaluation_report.metrics.metrics import judged
from ml_assets.assets.evaluation_report.rows import Truth, encode_labels
from ml_assets.errors import StorageError
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.training_program import Split
from ml_assets.store.pipeline_context import Pipeline, PipelineState

KEPT = 200
"""Rows of a report."""


@dataclass(frozen=True)
class Scores:
    """Rows that the model did not learn from, and what it says of them."""

    rows: pl.DataFrame
    predictions: np.ndarray
    """[n, outputs], in the order of the rows."""


def has_suspects(spec: PipelineSpec) -> bool:
    """Return whether a row has a label that may be wrong: of a ranking only a query has a loss, and
    the bytes of a text are counted."""
    return spec.label.task not in ("ranking", "language_model")


def suspects(spec: PipelineSpec, scored: Mapping[Split, Scores]) -> pl.DataFrame:
    """The ``KEPT`` rows with the highest loss, the highest first.

    Columns: the key, then ``split``, the label, ``prediction`` (binary: the probability of a
    positive; multiclass: the likeliest class; regression: the value) and ``loss``, as the metric of
    the task counts it. One that a column of the key is called has an underscore at its end.
    """
    parts = [_losses(spec, split, scores) for split, scores in scored.items()]
    return pl.concat(parts, how="vertical_relaxed").top_k(KEPT, by=parts[0].columns[-1])


def _losses(spec: PipelineSpec, split: Split, scores: Scores) -> pl.DataFrame:
    label, rows = spec.label, scores.rows
    truth = Truth(label.task, encode_labels(label, rows), label.classes)
    values = {
        "split": pl.lit(split),
        label.column: pl.col(label.column),
        "prediction": pl.Series(_said(spec, scores.predictions)),
        "loss": pl.Series(judged(truth, scores.predictions).losses(), dtype=pl.Float64),
    }
    taken = {*spec.features.key}
    named = [one.alias(f"{name}_" if name in taken else name) for name, one in values.items()]
    return rows.select(*spec.features.key, *named)


def _said(spec: PipelineSpec, predictions: np.ndarray) -> list[float] | list[str]:
    if spec.label.task == "multiclass":
        return [spec.label.classes[place] for place in predictions.argmax(axis=1)]
    return predictions.reshape(len(predictions), -1)[:, 0].tolist()


SUSPECTS_FILE = "suspects.parquet"


def read_suspects(state: PipelineState) -> pl.DataFrame | None:
    """The rows, the highest loss first; None where the report has none."""
    file = state.address("evaluation_report").file(SUSPECTS_FILE)
    if not state.exists(file):
        return None
    found = state.store.scan(state.commit, file).collect()
    return found.sort(found.columns[-1], descending=True, maintain_order=True)


def stored_suspects(pipeline: Pipeline) -> pl.DataFrame:
    """The same of a pipeline.

    Raises:
        StorageError: there are none, and why.
    """
    found = read_suspects(pipeline.now())
    if found is None and not has_suspects(pipeline.spec):
        raise StorageError(
            f"{pipeline.name} has no label suspects: in a ranking a row has no loss of its own."
        )
    if found is None:
        raise StorageError(
            f"{pipeline.name} has no label suspects yet, or its report was made by an older"
            f" version. Run: ml-assets run {pipeline.name}"
        )
    return found
