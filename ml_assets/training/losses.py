"""The loss of each row and what it weighs, task by task: training and validation divide the sums.

A ranking's loss is one of each query: ListNet's (Cao et al., 2007), with NDCG's gain as the target.
It is the cross entropy between the rows' shares of the gain and the softmax of their scores. Here a
row's loss is ``-log softmax`` and its weight the share; the shares of a query add up to one.
"""

from typing import assert_never

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from ml_assets.spec.training import Task
from ml_assets.training.data import Rows


def row_losses(logits: torch.Tensor, rows: Rows, task: Task) -> torch.Tensor:
    """Loss [n] of logits [n, members, outputs]; each member is trained for itself."""
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
        case "ranking":
            each = -_log_softmax_in_query(logits[..., 0], rows)
        case _:
            assert_never(task)
    return each.mean(1)


def row_weights(rows: Rows, task: Task, positive_weight: float) -> torch.Tensor:
    """[n]: ``positive_weight`` for a positive row of a binary task, a ranking's share, else 1."""
    match task:
        case "binary":
            if positive_weight != 1.0:
                return torch.where(rows.label > 0.5, positive_weight, 1.0)
            return torch.ones(len(rows.label))
        case "multiclass" | "regression":
            return torch.ones(len(rows.label))
        case "ranking":
            return rows.label
        case _:
            assert_never(task)


def prediction_losses(prediction: torch.Tensor, rows: Rows, task: Task) -> torch.Tensor:
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
        case "ranking":
            return -_log_softmax_in_query(prediction, rows)[:, 0]
        case _:
            assert_never(task)


def _log_softmax_in_query(scores: torch.Tensor, rows: Rows) -> torch.Tensor:
    """[n, k] log-softmax of scores [n, k] over the rows of a query, each column for itself.

    On a [queries, longest, k] table with empty places at minus infinity: no scattered sums, whose
    order could differ.
    """
    starts = rows.starts
    assert starts is not None
    lengths = starts.diff()
    query = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    place = torch.arange(len(scores)) - starts[query]
    table = scores.new_full((len(lengths), int(lengths.max()), scores.shape[1]), -torch.inf)
    table = table.index_put((query, place), scores)
    return torch.log_softmax(table, dim=1)[query, place]
