"""How a network is wired: rows stay apart, and every parameter is reached by the gradient."""

import torch

from ml_assets.spec.sanity import SanityCheck
from ml_assets.training.models import Network
from ml_assets.training.models.layers import Masks
from ml_assets.training.rows.batches import Tensors
from ml_assets.training.sanity.subject import Subject, verdict

_LEAK_ROWS = 16
_ROWS = 512


def no_batch_leak(subject: Subject) -> SanityCheck:
    """d(output of a row) / d(inputs of the others) is exactly zero, as trained and as scored.

    A leak may run one way only, so a first, a middle and a last row are asked. A ranking's rows are
    scored apart too: only its loss compares them.
    """
    rows = subject.batch(_LEAK_ROWS)
    network = subject.clone()
    few = min(_LEAK_ROWS, len(rows.label))
    worst, where = 0.0, "as trained and as scored"
    for mode, training in (("as it is trained", True), ("as it scores", False)):
        network.train(training)
        masks = Masks((subject.spec.seed,), (few,)) if training else None
        found = _largest_leak(network, rows, few, masks)
        if not found <= worst:  # not a number is worst of all
            worst, where = found, mode
    saw = (
        f"The largest gradient from a row's output to another row's inputs is {worst:g} ({where});"
        " expected exactly 0."
    )
    remedy = (
        "Look in the network for a mean, a norm, a sort or a shift over the rows (dimension 0),"
        " batch normalization too: a prediction would depend on which rows come with it."
    )
    return verdict("no_batch_leak", worst, 0.0, saw, remedy)


def _largest_leak(network: Network, rows: Tensors, few: int, masks: Masks | None) -> float:
    numeric = rows.numeric[:few].clone().requires_grad_()
    entered: list[torch.Tensor] = [numeric]

    def enter(_module: object, _inputs: object, output: torch.Tensor) -> torch.Tensor:
        """Codes have no gradient: what they are embedded as stands for them."""
        entered.append(output.detach().requires_grad_())
        return entered[-1]

    hook = network.embeddings.register_forward_hook(enter)
    try:
        logits = network(numeric, rows.categorical[:few], masks)
    finally:
        hook.remove()
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

    Rows of an embedding whose words are not in the batch have none, and need none.
    """
    network = subject.clone()
    subject.loss(network, subject.batch(_ROWS)).backward()
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
        "Look where the forward pass goes round them, or whether the features that they read are"
        " constant or not finite."
    )
    return verdict("gradients", float(len(bad)), 0.0, saw, remedy)
