"""The spread between models that differ in the seed alone, on the same rows."""

from collections.abc import Sequence

import numpy as np

from ml_assets.assets.evaluation_report.metrics.metrics import judged
from ml_assets.assets.evaluation_report.rows import Truth
from ml_assets.spec.records import SeedSpread


def spread_of(
    truth: Truth, predictions: Sequence[np.ndarray], *, spec: str, data: str, seeds: Sequence[int]
) -> SeedSpread:
    """Standard deviations (of a sample: n - 1) of the mean loss and of each metric all have.

    Args:
        predictions: [n, outputs] of each seed's model, in the order of the seeds.
        spec: digest of what they were trained by.
        data: digest of the training set.
    """
    models = [judged(truth, scores) for scores in predictions]
    points = [model.points() for model in models]
    deviations = {
        str(name): float(np.std([one[name] for one in points], ddof=1))
        for name in points[0]
        if all(name in one for one in points)
    }
    return SeedSpread(
        spec=spec,
        data=data,
        seeds=tuple(seeds),
        loss=float(np.std([model.losses().mean() for model in models], ddof=1)),
        metrics=deviations,
    )
