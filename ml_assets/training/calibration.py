"""Turns probabilities back into frequencies, after weights, oversampling or a focal loss moved
them.

Known effects are undone exactly: a focal loss by its link (Charoenphakdee et al., "On Focal Loss
for Class-Posterior Probability Estimation", 2021), weights and draws by the odds that they added to
each class (Elkan, "The Foundations of Cost-Sensitive Learning", 2001). The rest is fitted to the
validation split: Platt's sigmoid (1999; by Newton's method as Lin, Lin and Weng, 2007); for several
classes temperature and bias (Alexandari et al., 2020).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.training import TrainingSpec, moves_probabilities
from ml_assets.spec.training_program import Calibration
from ml_assets.training.events import EventWriter
from ml_assets.training.rows.arrays import Predict, SplitArrays
from ml_assets.training.rows.oversampling import OversampleIndex

Array = NDArray[np.float64]

FEWEST = 10
"""Rows that each class must have: below, the fit would tell more of chance than of the model."""
_CHUNK = 8192
_STEPS = 50
_TINY = 1e-12


def expected(
    training: TrainingSpec, classes: Sequence[str], oversampled: Sequence[OversampleIndex] = ()
) -> Calibration | None:
    """Undoes what training is known to do to the probabilities; None: it does nothing.

    Args:
        classes: of a multiclass label; binary: empty.
        oversampled: the rows that it draws more than once.
    """
    if not moves_probabilities(training):
        return None
    lifts = np.array(training.class_weights or [1.0] * len(classes) or [1.0, 1.0])
    lifts[1] *= training.positive_weight
    for more in oversampled:
        lifts[more.label] *= more.lift
    shift = np.log(lifts[0]) - np.log(lifts)
    gamma = training.focal_gamma if training.loss == "focal" else 0.0
    return Calibration(focal_gamma=gamma, shift=tuple((shift + 0.0).tolist()))


def calibrated(predictions: NDArray[np.floating], by: Calibration) -> Array:
    """Probabilities [n, outputs] as frequencies; binary: [n, 1], of the positive class."""
    log_p = _normalized(by.scale * _log_shares(predictions, by.focal_gamma) + np.array(by.shift))
    return np.exp(log_p[:, 1:] if predictions.shape[1] == 1 else log_p)


@dataclass(frozen=True)
class Calibrator:
    """Fits a calibration at the end of a training that asks for one."""

    training: TrainingSpec
    rows: SplitArrays
    """The validation split."""
    classes: tuple[str, ...]
    start: Calibration | None
    """The calibration that is known beforehand; few rows move little from it."""
    events: EventWriter

    def __call__(self, load: Callable[[], Predict]) -> Calibration | None:
        """Fit it; None where none is asked for or, with a warning, where the split is too small.

        Args:
            load: opens the model as it predicts without a calibration.
        """
        wanted = self.training.recalibrate
        if wanted is False or (wanted is None and not moves_probabilities(self.training)):
            return None
        start = self.start or Calibration(shift=(0.0,) * max(2, len(self.classes)))
        found = fit_to_split(load(), self.rows, self.classes, start)
        if isinstance(found, Calibration):
            return found
        self.events.warning(f"the model is not calibrated: {found}")
        return None


def fit_to_split(
    predict: Predict, rows: SplitArrays, classes: Sequence[str], start: Calibration
) -> Calibration | str:
    """Fit a calibration to a split, or say why none can be."""
    spans = [np.arange(a, min(a + _CHUNK, len(rows))) for a in range(0, len(rows), _CHUNK)]
    labels = np.concatenate([*rows.labels()])
    names = classes or ("false", "true")
    counts = np.bincount(labels, minlength=len(names))
    if counts.min() < FEWEST:
        told = ", ".join(f"{n} {name}" for name, n in zip(names, counts.tolist(), strict=True))
        return (
            f"that takes {FEWEST} validation rows of each class or more, and there are {told}. Make"
            " the validation split longer."
        )
    predicted = np.concatenate([predict(rows.take(span)) for span in spans])
    return fit(predicted, labels, start) or (
        "on the validation split a class gets rarer where its probability rises. The model is worse"
        " than knowing nothing; look at the features."
    )


def fit(predicted: Array, labels: NDArray[np.int64], start: Calibration) -> Calibration | None:
    """The likeliest scale and shifts; None where a higher probability means a rarer class.

    A normal prior of unit width around ``start`` keeps the answer finite where the classes can be
    told apart without an error. The scale is about the mean: where all predictions are alike, only
    the shifts move. Newton's method, with half of a step as long as it does not help.

    Args:
        predicted: [n, outputs] as the model predicts.
        labels: [n] place of the class; binary: 0 or 1.
    """
    shares = _log_shares(predicted, start.focal_gamma)
    shares = shares - shares[:, :1]
    means = shares.mean(axis=0)
    shares = shares - means
    center = np.array([start.scale, *(start.shift + start.scale * means)[1:]])
    at = center.copy()
    value = _cost(at, shares, labels, center)
    for _ in range(_STEPS):
        gradient, curvature = _slopes(at, shares, labels, center)
        step: Array = np.linalg.solve(curvature, gradient).astype(np.float64)
        while (lower := _cost(at - step, shares, labels, center)) > value:
            step = step / 2
            if np.abs(step).max() < _TINY:
                break
        at, value = at - step, lower
        if np.abs(step).max() < 1e-10:
            break
    if at[0] <= 0:
        return None
    found = start.model_copy(
        update={
            "scale": float(at[0]),
            "shift": (0.0, *(at[1:] - at[0] * means[1:]).tolist()),
            "rows": len(labels),
            "log_loss_before": _log_loss(_log_shares(predicted, 0.0), labels),
        }
    )
    loss = _log_loss(_log_shares(calibrated(predicted, found), 0.0), labels)
    return found.model_copy(update={"log_loss": loss})


def _log_shares(predictions: NDArray[np.floating], focal_gamma: float) -> Array:
    """[n, classes] logs of probabilities, a focal loss undone, up to a constant of the row."""
    p = predictions.astype(np.float64)
    p = np.clip(np.hstack([1 - p, p]) if p.shape[1] == 1 else p, _TINY, 1 - _TINY)
    if focal_gamma:
        rest = 1 - p
        slope = rest**focal_gamma - focal_gamma * rest ** (focal_gamma - 1) * p * np.log(p)
        return np.log(p) - np.log(slope)
    return np.log(p)


def _normalized(logits: Array) -> Array:
    """Log-softmax of [n, classes]."""
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def _logits(at: Array, shares: Array) -> Array:
    return at[0] * shares + np.concatenate([[0.0], at[1:]])


def _cost(at: Array, shares: Array, labels: NDArray[np.int64], center: Array) -> float:
    logs = _normalized(_logits(at, shares))
    return float(-logs[np.arange(len(labels)), labels].sum() + ((at - center) ** 2).sum() / 2)


def _slopes(
    at: Array, shares: Array, labels: NDArray[np.int64], center: Array
) -> tuple[Array, Array]:
    """Gradient and Hessian of the cost in (scale, shift of all classes but the first)."""
    p = np.exp(_normalized(_logits(at, shares)))
    mean = (p * shares).sum(axis=1)
    chosen = shares[np.arange(len(labels)), labels]
    counts = np.bincount(labels, minlength=p.shape[1])
    gradient = np.concatenate([[(mean - chosen).sum()], (p.sum(axis=0) - counts)[1:]])
    cross = (p * (shares - mean[:, None])).sum(axis=0)[1:]
    curvature = np.empty((len(at), len(at)))
    curvature[0, 0] = (p * shares**2).sum() - (mean**2).sum()
    curvature[0, 1:] = curvature[1:, 0] = cross
    curvature[1:, 1:] = (np.diag(p.sum(axis=0)) - p.T @ p)[1:, 1:]
    return gradient + at - center, curvature + np.eye(len(at))


def _log_loss(shares: Array, labels: NDArray[np.int64]) -> float:
    return float(-_normalized(shares)[np.arange(len(labels)), labels].mean())
