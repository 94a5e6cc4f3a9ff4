"""Measures calibration: error, slope and intercept, with intervals.

Slope and intercept are Cox's (1958): the outcome's log-odds as a line over the predicted log-odds;
the intercept is that at a slope of one. With several classes, the predicted one is judged.
"""

import numpy as np

from ml_assets.assets.evaluation_report.bootstrap import Resampler, student
from ml_assets.assets.evaluation_report.metrics.classification import Classified
from ml_assets.assets.evaluation_report.rows import Holdout
from ml_assets.spec.gates import Calibrated
from ml_assets.spec.records import Estimate, Interval

_EPSILON = 1e-6
"""Probabilities are kept so far from 0 and 1: log-odds have no end."""
_STEPS = 50
"""Most of Newton's steps; it takes fewer than ten where it settles."""
_TINY = 1e-9


def reliability(
    gate: Calibrated, holdout: Holdout, predictions: np.ndarray, samples: int, seed: int
) -> Estimate:
    """The measure that a gate asks for, of the whole holdout."""
    judged = Classified.of(holdout.truth, predictions)
    resampler = Resampler(holdout.blocks, samples, seed)
    interval: Interval | None = None
    if resampler.blocks > 1:
        if gate.measure == "ece":
            value, draws = judged.points()["ece"], judged.mean_draws(resampler)["ece"]
            seen = student(value, draws, resampler.blocks)
            interval = seen.model_copy(update={"low": max(0.0, seen.low)})
        else:
            interval = _line(judged, resampler, sloped=gate.measure == "slope")
    return Estimate(about="the whole holdout", rows=judged.rows, interval=interval)


def _line(judged: Classified, resampler: Resampler, *, sloped: bool) -> Interval | None:
    """The slope, or the intercept at a slope of one; None where the fit has no end."""
    p = np.clip(judged.confidence, _EPSILON, 1 - _EPSILON)
    odds = np.log(p / (1 - p))
    inputs = np.stack([np.ones(len(odds)), odds], axis=1) if sloped else np.ones((len(odds), 1))
    offset = np.zeros(len(odds)) if sloped else odds
    fitted = _fit(inputs, offset, judged.hit)
    if fitted is None:
        return None
    weights, gradient, curvature = fitted
    size = inputs.shape[1]
    sums = resampler.totals(np.concatenate([gradient, curvature], axis=1))
    # one Newton step from the fit, on each draw's rows
    slopes, curves = sums[:, :size], sums[:, size:].reshape(-1, size, size)
    usable = np.abs(np.linalg.det(curves)) > _TINY
    steps = np.linalg.solve(curves[usable], slopes[usable][:, :, None])[:, :, 0]
    return student(float(weights[-1]), (weights + steps)[:, -1], resampler.blocks)


def _fit(
    inputs: np.ndarray, offset: np.ndarray, hit: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Logistic regression by Newton's method.

    Returns:
        The weights, and each row's [n, m] gradient and [n, m * m] curvature at them; None where
        it does not settle: the outcome is the same for all rows, or a step function of the input.
    """
    weights = np.zeros(inputs.shape[1])
    outer = (inputs[:, :, None] * inputs[:, None, :]).reshape(len(inputs), -1)
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(offset + inputs @ weights, -30, 30)))
        gradient = inputs * (hit - chance)[:, None]
        curvature = outer * (chance * (1 - chance))[:, None]
        whole = curvature.sum(axis=0).reshape(len(weights), -1)
        if abs(np.linalg.det(whole)) < _TINY:
            return None
        step = np.linalg.solve(whole, gradient.sum(axis=0))
        if np.abs(step).max() < _TINY:
            return weights, gradient, curvature
        weights = weights + step
    return None
