"""Permutation importance: how much the loss rises when one feature's values are shuffled.

All shuffled copies are stacked, so one scoring is enough.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from ml_assets.assets.evaluation_report.champion_comparison import Pair
from ml_assets.assets.evaluation_report.rows import Holdout
from ml_assets.spec.pipeline import LabelSpec, PipelineSpec
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
    columns = () if spec.features.tokens else spec.features.columns
    size = min(len(rows), SAMPLE_ROWS, max(1, STACKED_ROWS // (len(columns) + 1)))
    draw = np.random.default_rng(spec.training.seed)
    sampled = sample(spec.label, rows, size, draw)
    size = len(sampled)
    asked = [spec.label.query] if spec.label.query else []
    read = [*spec.features.columns, spec.label.column, *asked]
    plain = rows[sampled if columns else []].select(list(dict.fromkeys(read)))
    copies = [plain.with_columns(plain[name].gather(draw.permutation(size))) for name in columns]
    return Shuffled(pl.concat([plain, *copies]), columns, sampled)


def importance(
    spec: PipelineSpec, holdout: Holdout, shuffled: Shuffled, predictions: np.ndarray
) -> tuple[FeatureImportance, ...]:
    """The importance of every feature, in the order of the spec.

    Args:
        holdout: the labels and blocks of all holdout rows.
        predictions: [len(shuffled.stacked), outputs], in the order of the stack.
    """
    truth, blocks = holdout.truth.of(shuffled.sampled), holdout.blocks[shuffled.sampled]
    plain, *others = np.split(predictions, len(shuffled.columns) + 1)
    return tuple(
        FeatureImportance(
            column=column,
            loss_rise=Pair.of(
                truth, scores, plain, blocks, SAMPLES, spec.training.seed
            ).loss_difference(),
        )
        for column, scores in zip(shuffled.columns, others, strict=True)
    )


def sample(
    label: LabelSpec, rows: pl.DataFrame, size: int, draw: np.random.Generator
) -> np.ndarray:
    """[r] about ``size`` rows, in their order; of a ranking, whole queries that can be judged."""
    if label.query is None:
        return np.sort(draw.permutation(len(rows))[:size])
    queries = (
        rows.with_row_index("row")
        .group_by(label.query, maintain_order=True)
        .agg("row", pl.col(label.column).max().alias("best"))
        .filter(pl.col("best") > 0)
    )
    drawn = queries[draw.permutation(len(queries))]["row"]
    fit = int((drawn.list.len().cum_sum() <= size).sum())
    return np.sort(drawn.head(max(1, fit)).explode().to_numpy())
