"""Permutation importance: how much the loss rises where one feature's values are shuffled.

All shuffled copies are stacked, so that one scoring of them is enough.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from ml_assets.evaluation.compare import compare
from ml_assets.evaluation.rows import Holdout
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import FeatureImportance

SAMPLE_ROWS = 1000
STACKED_ROWS = 40_000
"""Most rows of the sample, and of all its copies together: more columns, fewer rows of each."""
SAMPLES = 200
"""Bootstrap draws of each interval."""


@dataclass(frozen=True)
class Shuffled:
    """A sample of rows as it is, then once for each column with that column shuffled."""

    stacked: pl.DataFrame
    columns: tuple[str, ...]
    sampled: np.ndarray
    """[r] which rows of the holdout the sample holds."""


def shuffle(spec: PipelineSpec, rows: pl.DataFrame) -> Shuffled:
    """The stacked copies of a sample of the holdout; equal rows give an equal stack."""
    columns = (*spec.features.numeric, *spec.features.categorical)
    size = min(len(rows), SAMPLE_ROWS, max(1, STACKED_ROWS // (len(columns) + 1)))
    draw = np.random.default_rng(spec.training.seed)
    sampled = np.sort(draw.permutation(len(rows))[:size])
    sample = rows[sampled].select(*columns, spec.label.column)
    copies = [sample.with_columns(sample[name].gather(draw.permutation(size))) for name in columns]
    return Shuffled(pl.concat([sample, *copies]), columns, sampled)


def importance(
    spec: PipelineSpec, holdout: Holdout, shuffled: Shuffled, predictions: np.ndarray
) -> tuple[FeatureImportance, ...]:
    """The importance of every feature, in the order of the spec.

    Args:
        holdout: the labels and blocks of all holdout rows.
        predictions: [len(shuffled.stacked), outputs], in the order of the stack.
    """
    labels, blocks = holdout.labels[shuffled.sampled], holdout.blocks[shuffled.sampled]
    plain, *others = np.split(predictions, len(shuffled.columns) + 1)
    return tuple(
        FeatureImportance(
            column=column,
            loss_rise=compare(
                spec.label.task, labels, scores, plain, blocks, SAMPLES, spec.training.seed
            ),
        )
        for column, scores in zip(shuffled.columns, others, strict=True)
    )
