"""The loss of each row: the mean over the members, weighted."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from ml_assets.spec.training import Task


def row_losses(logits: torch.Tensor, label: torch.Tensor, task: Task) -> torch.Tensor:
    """Log-loss [n] of logits [n, members, outputs]; each member is trained for itself."""
    members = logits.shape[1]
    if task == "binary":
        target = label[:, None].expand(-1, members)
        return binary_cross_entropy_with_logits(logits[..., 0], target, reduction="none").mean(1)
    target = label[:, None].expand(-1, members).reshape(-1)
    each = cross_entropy(logits.reshape(-1, logits.shape[-1]), target, reduction="none")
    return each.view(-1, members).mean(1)


def row_weights(label: torch.Tensor, task: Task, positive_weight: float) -> torch.Tensor:
    """``positive_weight`` for a positive row of a binary task, else 1: [n]."""
    if task == "binary" and positive_weight != 1.0:
        return torch.where(label > 0.5, positive_weight, 1.0)
    return torch.ones(len(label))


def prediction_losses(probability: torch.Tensor, label: torch.Tensor, task: Task) -> torch.Tensor:
    """Log-loss [n] of the ensemble's probabilities [n, outputs], as the evaluation counts it."""
    p = probability.clamp(1e-12, 1 - 1e-12)
    if task == "binary":
        truth = label.double()
        return -(truth * torch.log(p[:, 0]) + (1 - truth) * torch.log(1 - p[:, 0]))
    return -torch.log(p.gather(1, label.long()[:, None])[:, 0])
