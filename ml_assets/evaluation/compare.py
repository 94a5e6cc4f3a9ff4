"""A candidate against the champion, on the same rows: the paired difference in log-loss."""

from collections.abc import Sequence

import numpy as np

from ml_assets.evaluation.bootstrap import Resampler, interval
from ml_assets.evaluation.metrics import row_log_loss
from ml_assets.spec.records import Interval
from ml_assets.spec.training import Task


def compare(
    task: Task,
    labels: np.ndarray,
    candidate: np.ndarray,
    champion: np.ndarray,
    blocks: np.ndarray,
    samples: int,
    seed: int,
) -> Interval:
    """Mean log-loss of the candidate minus the champion's; below zero, the candidate is better.

    Args:
        labels: [n] 0 or 1, or the place of the class.
        candidate: [n, 1] or [n, k] probabilities, in the order of the rows.
        champion: likewise, on the same rows.
        blocks: [n] rows of one block are resampled together.
        samples: bootstrap draws.

    Raises:
        EvidenceError: no rows, or predictions that are no probabilities.
    """
    if len(candidate) != len(champion) or len(blocks) != len(labels):
        raise ValueError(
            f"candidate, champion and blocks are about {len(candidate)}, {len(champion)} and"
            f" {len(blocks)} rows; they must be the same rows"
        )
    classes = _classes(task, candidate)
    difference = row_log_loss(task, classes, labels, candidate) - row_log_loss(
        task, classes, labels, champion
    )
    draws = Resampler(blocks, samples, seed).totals(
        np.stack([difference, np.ones(len(difference))], axis=1)
    )
    return interval(float(difference.mean()), draws[:, 0] / draws[:, 1])


def _classes(task: Task, predictions: np.ndarray) -> Sequence[str]:
    return () if task == "binary" else [str(k) for k in range(predictions.shape[1])]
