"""The loss and the weight of each row, task by task; training and validation divide the sums.

A ranking's loss is one of each query: ListNet's (Cao et al., 2007), with NDCG's gain as the target.
It is the cross entropy between the rows' shares of the gain and the softmax of their scores. Here a
row's loss is ``-log softmax`` and its weight the share; the shares of a query add up to one.

A language model answers with the nats of a window's targets: its loss is that of one target, its
weight is their number.
"""

from collections.abc import Sequence
from typing import assert_never

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid

from ml_assets.errors import counted
from ml_assets.spec.training import Task, TrainingSpec
from ml_assets.training.models.network import Network
from ml_assets.training.rows.batches import Tensors
from ml_assets.training.stop import BadRequest, TeamCodeFailed


def gamma_of(training: TrainingSpec) -> float:
    """The focal loss's exponent; 0: the plain log-loss."""
    return training.focal_gamma if training.loss == "focal" else 0.0


def training_losses(
    network: Network, logits: torch.Tensor, rows: Tensors, task: Task, spec: TrainingSpec
) -> torch.Tensor:
    """Return what training minimizes, of each row: [n]. A team's network may have a loss of its
    own.

    Raises:
        TeamCodeFailed: that loss is not one number for each row.
    """
    if network.own_loss is None:
        return row_losses(logits, rows, task, gamma_of(spec))
    losses = network.own_loss(logits, rows.label)
    if losses.shape != rows.label.shape:
        raise TeamCodeFailed(
            f"model.loss returned {tuple(losses.shape)} for {counted(len(rows.label), 'row')};"
            " expected a loss of each row: do not take the mean."
        )
    return losses


def row_losses(
    logits: torch.Tensor, rows: Tensors, task: Task, focal_gamma: float = 0.0
) -> torch.Tensor:
    """Loss [n] of logits [n, members, outputs]; each member is trained for itself.

    Args:
        focal_gamma: of classes; a log-loss L becomes ``(1 - exp(-L))^gamma L`` (Lin et al., "Focal
            Loss for Dense Object Detection", 2017).
    """
    members = logits.shape[1]
    match task:
        case "binary":
            target = rows.label[:, None].expand(-1, members)
            each = binary_cross_entropy_with_logits(logits[..., 0], target, reduction="none")
        case "multiclass":
            target = rows.label[:, None].expand(-1, members).reshape(-1)
            flat = cross_entropy(logits.reshape(-1, logits.shape[-1]), target, reduction="none")
            each = flat.view(-1, members)
        case "regression":
            each = (logits[..., 0] - rows.label[:, None]) ** 2
        case "language_model":
            each = logits[..., 0] / rows.label[:, None]
        case "ranking":
            each = -_log_softmax_in_query(logits[..., 0], rows)
        case _:
            assert_never(task)
    if focal_gamma:
        each = _focal(each, focal_gamma)
    return each.mean(1)


def distillation_losses(
    logits: torch.Tensor, taught: torch.Tensor, task: Task, temperature: float
) -> torch.Tensor:
    """Return how far logits [n, members, outputs] are from what a teacher says: [n].

    Of classes ``T^2 KL(p || q)``: p is the teacher's distribution, q the network's, both of logits
    over T. Its gradient is that of the cross entropy with soft targets, and T^2 keeps its size
    whatever T is (Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, section 2).
    Of numbers the squared difference.

    Args:
        taught: [n, outputs] softened probabilities (of a binary label that of 1), or the number.
    """
    match task:
        case "binary":
            p, z = taught[:, None, 0], logits[..., 0] / temperature
            each = torch.xlogy(p, p) - p * logsigmoid(z)
            each = each + torch.xlogy(1 - p, 1 - p) - (1 - p) * logsigmoid(-z)
        case "multiclass":
            p, log_q = taught[:, None], torch.log_softmax(logits / temperature, dim=-1)
            each = (torch.xlogy(p, p) - p * log_q).sum(-1)
        case "regression":
            return ((logits[..., 0] - taught) ** 2).mean(1)
        case "ranking" | "language_model":
            raise BadRequest(f"training.distill is not for a {task} task.")
        case _:
            assert_never(task)
    return temperature**2 * each.mean(1)


def row_weights(
    rows: Tensors, task: Task, positive_weight: float = 1.0, class_weights: Sequence[float] = ()
) -> torch.Tensor:
    """[n]: what each row of a class weighs, a ranking's share, the targets of a window, else 1.

    Args:
        positive_weight: of a positive row (binary).
        class_weights: [classes] (multiclass); empty: one.
    """
    match task:
        case "binary":
            if positive_weight != 1.0:
                return torch.where(rows.label > 0.5, positive_weight, 1.0)
            return torch.ones_like(rows.label)
        case "multiclass":
            if class_weights:
                return rows.label.new_tensor(class_weights, dtype=torch.float32)[rows.label.long()]
            return torch.ones_like(rows.label, dtype=torch.float32)
        case "regression":
            return torch.ones_like(rows.label)
        case "ranking" | "language_model":
            return rows.label
        case _:
            assert_never(task)


def prediction_losses(prediction: torch.Tensor, rows: Tensors, task: Task) -> torch.Tensor:
    """Loss [n] of the ensemble's predictions [n, outputs], as the evaluation counts it.

    Regression: of the standardized value.
    """
    match task:
        case "binary":
            p, truth = prediction[:, 0].clamp(1e-12, 1 - 1e-12), rows.label.double()
            return -(truth * torch.log(p) + (1 - truth) * torch.log(1 - p))
        case "multiclass":
            p = prediction.clamp(1e-12, 1 - 1e-12)
            return -torch.log(p.gather(1, rows.label.long()[:, None])[:, 0])
        case "regression":
            return (prediction[:, 0] - rows.label.double()) ** 2
        case "language_model":
            return prediction[:, 0] / rows.label.double()
        case "ranking":
            return -_log_softmax_in_query(prediction, rows)[:, 0]
        case _:
            assert_never(task)


def _focal(log_loss: torch.Tensor, gamma: float) -> torch.Tensor:
    """The power is of a number kept off zero: below gamma 1 its slope there is infinite."""
    missed = -torch.expm1(-log_loss)
    return missed.clamp(min=torch.finfo(missed.dtype).tiny) ** gamma * log_loss


def _log_softmax_in_query(scores: torch.Tensor, rows: Tensors) -> torch.Tensor:
    """[n, k] log-softmax of scores [n, k] over the rows of a query, each column for itself.

    On a [queries, longest, k] table with empty places at minus infinity: no scattered sums, whose
    order could differ.
    """
    starts = rows.starts
    assert starts is not None
    lengths = starts.diff()
    query = torch.repeat_interleave(torch.arange(len(lengths), device=starts.device), lengths)
    place = torch.arange(len(scores), device=starts.device) - starts[query]
    table = scores.new_full((len(lengths), int(lengths.max()), scores.shape[1]), -torch.inf)
    table = table.index_put((query, place), scores)
    return torch.log_softmax(table, dim=1)[query, place]
