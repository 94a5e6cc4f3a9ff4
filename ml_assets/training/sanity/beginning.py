"""Where a network begins: at the base rate of its labels, with the loss that theory gives."""

import math
from typing import assert_never

import numpy as np
import torch
from numpy.typing import NDArray

from ml_assets.spec.sanity import SanityCheck
from ml_assets.training.rows.batches import Tensors
from ml_assets.training.sanity.subject import Subject, verdict

_ROWS = 2048
_SLACK, _SHARE = 0.05, 0.1
"""A network of small random weights is near a constant, not quite one. Measured on both families,
widths of 8 to 256, depths of 1 to 4: at most 0.06 over theory for classes, 0.17 (of 1.6) for a
ranking, 0.27 for a number, most of it chance; 0.4 and more where the last weights are 40 times too
large."""
_ERRORS = 4.0
"""Standard errors that chance is allowed: once in 16,000 sets."""


def loss_at_init(subject: Subject) -> SanityCheck:
    """The loss of the network, its output bias put where theory has it, against theory's loss.

    The bias is put there so that a wrong one is told by ``output_bias`` alone.
    """
    rows = subject.batch(_ROWS)
    network = subject.clone()
    with torch.no_grad():
        network.output_bias.copy_(_theory_bias(subject, rows).expand_as(network.output_bias))
        seen = float(subject.loss(network, rows))
    expected, chance, what = _theory_loss(subject, rows)
    bound = _SLACK + _SHARE * expected + _ERRORS * chance
    saw = f"The first loss is {seen:.3f}; expected {expected:.3f}, {what}, to within {bound:.2f}."
    remedy = (
        "Lower the values that the weights begin with, or scale the features: training would begin"
        " by unlearning them. A loss below theory means that the loss or the labels are wrong."
    )
    return verdict("loss_at_init", abs(seen - expected), bound, saw, remedy)


def output_bias(subject: Subject) -> SanityCheck:
    """What the output bias alone predicts, against the labels of the rows that training sees."""
    rows = subject.batch(_ROWS)
    bias = subject.network.output_bias.detach().double()
    label = rows.label.double()
    match subject.task:
        case "binary":
            predicted, rates, unit = torch.sigmoid(bias), label.mean()[None], "the base rate"
        case "multiclass":
            rates = torch.bincount(rows.label.long(), minlength=bias.shape[-1]).double() / len(
                label
            )
            predicted, unit = torch.softmax(bias, dim=-1), "the base rates of the classes"
        case "regression" | "ranking":
            predicted, rates, unit = bias, label.mean()[None], "the mean of the scaled labels"
        case _:
            assert_never(subject.task)
    spread = (rates * (1 - rates)).clamp(min=0) if subject.task != "regression" else label.var()
    away = (predicted - rates).abs().amax(0)
    worst = int((away - _ERRORS * (spread / len(label)).sqrt()).argmax())
    bound = 0.01 + _ERRORS * math.sqrt(float(spread.expand_as(rates)[worst]) / len(label))
    saw = (
        f"The output bias predicts {float(predicted[0, worst]):.3f}; expected"
        f" {float(rates[worst]):.3f}, {unit}, to within {bound:.3f}."
    )
    remedy = (
        "Let set_output_bias begin there (or look at label_rate of the training set): the first"
        " epochs would be spent on learning a constant."
    )
    return verdict("output_bias", float(away[worst]), bound, saw, remedy)


def _theory_bias(subject: Subject, rows: Tensors) -> torch.Tensor:
    """The output bias of the best constant prediction: [outputs]."""
    bias = torch.zeros(subject.network.output_bias.shape[-1])
    match subject.task:
        case "binary":
            return torch.logit(rows.label.mean(), eps=1e-6)[None]
        case "multiclass":
            counts = torch.bincount(rows.label.long(), minlength=len(bias))
            return torch.log((counts / counts.sum()).clamp(min=1e-6))
        case "regression" | "ranking":
            return bias
        case _:
            assert_never(subject.task)


def _theory_loss(subject: Subject, rows: Tensors) -> tuple[float, float, str]:
    """The loss of the best constant prediction, its standard error, and what it is called."""
    label = rows.label.double().numpy()
    match subject.task:
        case "binary":
            p = np.clip(label.mean(), 1e-6, 1 - 1e-6)
            own = np.where(label > 0.5, p, 1 - p)
            return _of_classes(own, subject, rows), 0.0, "the entropy of the labels"
        case "multiclass":
            shares = np.bincount(label.astype(np.int64)) / len(label)
            own = shares[label.astype(np.int64)]
            return _of_classes(own, subject, rows), 0.0, "the entropy of the labels"
        case "regression":
            chance = float(np.std(label**2) / math.sqrt(len(label)))
            return 1.0, chance, "the variance of the scaled labels"
        case "ranking":
            assert rows.starts is not None
            logs = np.log(np.diff(rows.starts.numpy()))
            return float(logs.mean()), 0.0, "the mean of log(rows of a query)"
        case _:
            assert_never(subject.task)


def _of_classes(own: NDArray[np.float64], subject: Subject, rows: Tensors) -> float:
    """The mean loss of rows whose own class is predicted with these probabilities [n].

    The entropy where each row weighs the same; weights and a focal loss as the spec has them.
    """
    gamma = subject.spec.focal_gamma if subject.spec.loss == "focal" else 0.0
    weights = subject.weights(rows).double().numpy()
    return float((-np.log(own) * (1 - own) ** gamma * weights).sum() / weights.sum())
