"""The checks of a network before its first step: where it begins, and how it is wired.

It begins at the base rate of its labels, with the loss that theory gives; rows stay apart; the
gradient reaches every parameter.
"""

import math
from typing import assert_never

import numpy as np
import torch
from numpy.typing import NDArray

from ml_assets.errors import counted
from ml_assets.spec.sanity import SanityCheck
from ml_assets.spec.training import Module, Task
from ml_assets.training.models.batch_norm import norms_of
from ml_assets.training.models.layers import Masks
from ml_assets.training.models.network import Network
from ml_assets.training.rows.batches import Tensors
from ml_assets.training.sanity.subject import Subject, mixing, verdict

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
    """Compare what the output bias alone predicts with the labels of the first rows."""
    rows = subject.batch(_ROWS)
    bias = subject.network.output_bias.detach().double()
    if subject.task == "language_model":
        return _token_bias(bias[0], rows)
    label = rows.label.double()
    match subject.task:
        case "binary":
            predicted, rates, unit = torch.sigmoid(bias), label.mean()[None], "the base rate"
        case "multiclass":
            label = rows.label.long()
            rates = torch.bincount(label, minlength=bias.shape[-1]).double() / len(label)
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


def _token_bias(bias: torch.Tensor, rows: Tensors) -> SanityCheck:
    """The tokens of a text come together, so that no share of one is sure: nats are compared."""
    tokens = classes_of(rows, "language_model")
    shares = (torch.bincount(tokens) / len(tokens)).double()
    best = float(-torch.log(shares[tokens]).mean())
    seen = float(-torch.log_softmax(bias, 0)[tokens].mean())
    bound = (best + math.log(len(bias))) / 2
    saw = (
        f"The output bias alone takes {seen:.3f} nats for a token; expected at most {bound:.3f},"
        f" halfway from the {best:.3f} of its frequencies to no bias at all."
    )
    remedy = "Let set_output_bias begin there: the first steps would be spent on learning it."
    return verdict("output_bias", seen, bound, saw, remedy)


def classes_of(rows: Tensors, task: Task) -> torch.Tensor:
    """[targets] what is to be told apart: the rows' classes, or every token of the windows."""
    if task != "language_model":
        return rows.label.long()
    targets = rows.categorical[:, 1:].long()
    return targets[targets >= 0]


def _theory_bias(subject: Subject, rows: Tensors) -> torch.Tensor:
    """The output bias of the best constant prediction: [outputs]."""
    bias = torch.zeros(subject.network.output_bias.shape[-1])
    match subject.task:
        case "binary":
            return torch.logit(rows.label.mean(), eps=1e-6)[None]
        case "multiclass" | "language_model":
            counts = torch.bincount(classes_of(rows, subject.task), minlength=len(bias))
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
        case "language_model":
            tokens = classes_of(rows, subject.task)
            shares = (torch.bincount(tokens) / len(tokens)).double()
            return float(-torch.log(shares[tokens]).mean()), 0.0, "the entropy of the tokens"
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


_LEAK_ROWS = 16
_FEW_ROWS = 8
"""Of a microbatch: those that batch norm learns badly by."""
_EXCHANGED_ROWS = 128
_GRADIENT_ROWS = 512
_ROUNDING = 1e-4
"""A gradient that training cancels is smaller than this share of what it would be."""
_APART = 1e-6
"""How far a row's logits may move when rows beside it are exchanged for as many others."""
_STAY_APART = (
    "Look in the network for a mean, a norm, a sort or a shift over the rows (dimension 0): a"
    " prediction would depend on the other rows. A batch norm of your own does that: use"
    " nn.BatchNorm1d, 2d or 3d, whose statistics are known, GroupNorm or LayerNorm. An LSTM or"
    " GRU takes batch_first=True."
)


def no_batch_leak(subject: Subject, *, deep: bool = False) -> SanityCheck:
    """d(output of a row) / d(inputs of the others) is exactly zero, as trained and as scored.

    A leak may run one way only, so a first, a middle and a last row are asked. A ranking's rows are
    scored apart too: only its loss compares them. A team's own network may do to many rows what it
    does not to few: it is asked with a microbatch, too, and by rows that are exchanged.

    An ``nn.BatchNorm`` mixes the rows of a microbatch while it trains, and is meant to. So that
    nothing hides behind it, its running statistics stand in for theirs; then whole microbatches are
    exchanged, for theirs to stay within them.
    """
    own = isinstance(subject.model, Module)
    if (own or deep) and (moved := _exchanged(subject)) is not None:
        return moved
    network, spec = subject.clone(), subject.spec
    norms = norms_of(network)
    worst, where = 0.0, "as trained and as scored"
    microbatch = spec.batch_size // spec.microbatches
    for mode, training in (("as it is trained", True), ("as it scores", False)):
        _without_statistics(network.train(training))
        for wanted in {_LEAK_ROWS, microbatch} if own else {_LEAK_ROWS}:
            rows = subject.batch(wanted)
            few = min(wanted, len(rows.label))
            masks = Masks((spec.seed,), (few,)) if training else None
            found = _largest_leak(network, rows, few, masks)
            if not found <= worst:  # not a number is worst of all
                worst, where = found, f"{mode}, {few} rows"
    saw = (
        f"The largest gradient from a row's output to another row's inputs is {worst:g} ({where});"
        " expected exactly 0."
    )
    if not norms:
        return verdict("no_batch_leak", worst, 0.0, saw, _STAY_APART)
    few = microbatch < _FEW_ROWS
    told = f"In training, its {counted(len(norms), 'batch norm', 'use')} the statistics of one" + (
        f" microbatch: {counted(microbatch, 'row')} (training.batch_size / training.microbatches)."
        if few or not deep  # which tries it with few rows
        else " microbatch."
    )
    if worst == 0 and few:
        told += " So few make noise of them: lower training.microbatches, to 16 rows or more."
        return SanityCheck(
            name="no_batch_leak", outcome="warned", value=worst, bound=0.0, reason=f"{told} {saw}"
        )
    return verdict("no_batch_leak", worst, 0.0, f"{saw} {told}", _STAY_APART)


def _without_statistics(network: torch.nn.Module) -> None:
    """Let batch norms normalize as they score, in a pass that trains too."""
    for norm in norms_of(network):
        norm.eval()


def _exchanged(subject: Subject) -> SanityCheck | None:
    """Exchange half of the rows, of few and of as many as are ever scored at once.

    Returns:
        The check that failed because other rows moved; None: none did.
    """
    most = subject.rows.at_once
    for mode, training in (("as it is trained", True), ("as it scores", False)):
        network = subject.clone()
        _without_statistics(network.train(training))
        for count in sorted({min(_EXCHANGED_ROWS, most), most}):
            kept = torch.rand(count, generator=torch.Generator().manual_seed(count)) < 0.5
            masks = Masks((subject.spec.seed,), (count,)) if training else None
            if found := _moved(subject, network, kept, masks, mode):
                return found
    network = subject.clone().train()
    if not norms_of(network):
        return None
    rows = (_EXCHANGED_ROWS // _LEAK_ROWS,) * _LEAK_ROWS
    kept = torch.arange(_LEAK_ROWS).repeat_interleave(rows[0]) % 3 > 0
    masks = Masks(tuple(range(_LEAK_ROWS)), rows)
    return _moved(subject, network, kept, masks, "in other microbatches, as it is trained")


def _moved(
    subject: Subject, network: Network, kept: torch.Tensor, masks: Masks | None, mode: str
) -> SanityCheck | None:
    """The check that failed, where logits of rows that are kept move by those that are not."""
    inputs = _half_exchanged(subject, len(kept), kept)
    with torch.no_grad():
        one, other = (network(*rows, masks)[kept] for rows in inputs)
    moved = float((one - other).abs().max())
    if moved <= _APART:
        return None
    saw = (
        f"Logits of a row move by {moved:g} when other rows are exchanged"
        f"{mixing(network, inputs, masks, kept)} ({mode}, {counted(len(kept), 'row')}); expected 0."
    )
    return verdict("no_batch_leak", moved, _APART, saw, _STAY_APART)


def _half_exchanged(subject: Subject, count: int, kept: torch.Tensor) -> list[list[torch.Tensor]]:
    """Numeric and categorical [count, ...] twice: the rows that are not kept differ."""
    rows, other = subject.batch(count), subject.batch(count, step=1)
    pairs = ((rows.numeric, other.numeric), (rows.categorical, other.categorical))
    again = torch.arange(count)  # the same rows again, where there are not as many
    first = [one[again % len(one)] for one, _ in pairs]
    second = [
        torch.where(kept[:, None], one[again % len(one)], two[again % len(two)])
        for one, two in pairs
    ]
    return [first, second]


def _largest_leak(network: Network, rows: Tensors, few: int, masks: Masks | None) -> float:
    numeric = rows.numeric[:few].clone().requires_grad_()
    entered: list[torch.Tensor] = [numeric]

    def enter(_module: object, _inputs: object, output: torch.Tensor) -> torch.Tensor:
        """Codes have no gradient: what they are embedded as stands for them."""
        entered.append(output.detach().requires_grad_())
        return entered[-1]

    tables = [one for one in network.modules() if isinstance(one, torch.nn.Embedding)]
    hooks = [table.register_forward_hook(enter) for table in tables]
    try:
        logits = network(numeric, rows.categorical[:few], masks)
    finally:
        for hook in hooks:
            hook.remove()
    entered = [one for one in entered if len(one) == few]  # else the rows are not what comes first
    worst = torch.zeros(())
    for row in sorted({0, few // 2, few - 1}):
        found = torch.autograd.grad(
            logits[row].sum(), entered, retain_graph=True, allow_unused=True
        )
        for gradient in found:
            if gradient is not None and gradient.numel():
                others = gradient.abs().index_fill(0, torch.tensor([row]), 0.0)
                worst = torch.maximum(worst, others.max())  # hands a NaN on
    return float(worst)


def gradients(subject: Subject) -> SanityCheck:
    """One backward pass over real rows: which parameters get no gradient, or none that is finite.

    Batch norms take their running statistics here. By those of the rows, as they train, they cancel
    a bias that comes before them: rounding is left of its gradient, and moves it. That warns.
    Rows of an embedding whose words are not in the batch have none, and need none.
    """
    network, rows = subject.clone(), subject.batch(_GRADIENT_ROWS)
    subject.mean_loss(network(rows.numeric, rows.categorical, None), rows).backward()
    bad: list[str] = []
    for name, parameter in network.named_parameters():
        if parameter.numel() == 0 or (subject.task == "ranking" and name == "output_bias"):
            continue  # a bias moves all scores of a query alike: no order changes
        if not parameter.requires_grad:
            bad.append(f"{name} (frozen)")
        elif parameter.grad is None:
            bad.append(f"{name} (not used)")
        elif not bool(torch.isfinite(parameter.grad).all()):
            bad.append(f"{name} (not finite)")
        elif not bool(parameter.grad.any()):
            bad.append(f"{name} (all zero)")
    count = sum(1 for _ in network.parameters())
    saw = f"All {count} parameters get a finite gradient that is not zero."
    if bad:
        saw = (
            f"{len(bad)} of {count} parameters get no gradient to learn by: {', '.join(bad[:8])}"
            f"{', ...' if len(bad) > 8 else ''}; expected none such."
        )
    remedy = (
        "Check whether the forward pass leaves them out, or whether the features that they read are"
        " constant or not finite."
    )
    if not bad and (lost := _cancelled(subject, network, rows)):
        saw = (
            f"Batch norm cancels the gradient of {', '.join(lost[:8])}: what is left is rounding,"
            " by which another number of processes comes to other weights. Build the layer before"
            " it with bias=False."
        )
        return SanityCheck(name="gradients", outcome="warned", value=0.0, bound=0.0, reason=saw)
    return verdict("gradients", float(len(bad)), 0.0, saw, remedy)


def _cancelled(subject: Subject, network: Network, rows: Tensors) -> list[str]:
    """Parameters that have a gradient in a network, and next to none where it trains."""
    if not norms_of(network):
        return []
    trained = subject.clone()
    subject.loss(trained, rows).backward()
    pairs = zip(network.named_parameters(), trained.parameters(), strict=True)
    return [
        name
        for (name, one), other in pairs
        if one.grad is not None
        and other.grad is not None
        and bool(other.grad.norm() < _ROUNDING * one.grad.norm())
    ]
