"""Finds the rank on which a step went wrong: branches that differ, numbers that are not finite.

A rank that skips a branch would leave the others waiting in a sum that it never joins, or have its
own numbers added to another's. If a number was not finite, the step's passes run once more, row by
row, before any sum hides its origin.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn

from ml_assets.training.distributed.ranks import Ranks
from ml_assets.training.rows.batches import Tensors
from ml_assets.training.stop import RanksDiffer


def require_same_branches(loss: torch.Tensor, network: nn.Module, ranks: Ranks, step: int) -> None:
    """Compare which parameters the loss depends on, before any gradient is summed.

    One small message; asked at the first step and after each evaluation. Parameters of a layer that
    was gathered by itself are seen as a number only.

    Raises:
        RanksDiffer: a rank goes round parameters that others go through; it names both.
    """
    if ranks.world == 1:
        return
    reached = _leaves(loss)
    names = [name for name, _ in network.named_parameters()]
    mine = [float(id(parameter) in reached) for parameter in network.parameters()]
    table = torch.zeros(ranks.world, len(mine) + 1, dtype=torch.float64)
    table[ranks.rank] = torch.tensor([*mine, float(len(reached))])
    dist.all_reduce(table)
    differ = (table != table[0]).any(0)
    if not bool(differ.any()):
        return
    found: list[str] = []
    for rank in range(ranks.world):
        skipped = [
            n for n, d, own in zip(names, differ, table[rank], strict=False) if d and not own
        ]
        if skipped:
            shown = ", ".join(skipped[:5]) + (", ..." if len(skipped) > 5 else "")
            found.append(f"rank {rank} skips {shown}")
    counts = ", ".join(str(int(count)) for count in table[:, -1])
    said = "; ".join(found) or f"they reach {counts} parameters, rank by rank"
    raise RanksDiffer(
        f"At step {step} the ranks do not go through the same parameters: {said}. Nothing was"
        " updated. Let the forward pass take the same branches whatever its rows are (multiply by"
        " zero instead of skipping), or set training.processes to 1.",
        step,
    )


def _leaves(loss: torch.Tensor) -> set[int]:
    """Identities of the tensors that the gradient of the loss is gathered in."""
    seen: set[object] = set()
    found: set[int] = set()
    ahead: list[torch.autograd.graph.Node | None] = [loss.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found.add(id(leaf))
        ahead += [before for before, _ in node.next_functions]
    return found


_SHOWN = 5
_KINDS = ("", "features or label", "loss", "gradient")
"""The quantities that may be no number, in the order in which one makes the next so."""
_EVERYWHERE = {
    1: "No row of any rank has finite features: look at what encoded them.",
    2: "The loss of every row of every rank is not finite: the weights have diverged. Lower"
    " training.learning_rate or training.clip_norm.",
    3: "The gradient of every row of every rank is not finite, though each loss is: look in the"
    " network for a root, a logarithm, a norm or a division at zero.",
}


class Pass(NamedTuple):
    """One pass of this rank over one of its batches of the step."""

    rows: Tensors
    losses: torch.Tensor
    """[rows], weighted."""


def locate_non_finite(passes: Iterable[Pass], ranks: Ranks, unit: str) -> str:
    """Name the rank, batch and rows that were not finite first. All ranks must call it.

    Args:
        passes: of this rank, their gradient kept from being summed. ``rows.numeric`` takes one.
        unit: what ``rows.numbers`` count: ``rows`` or ``queries``.
    """
    mine = torch.zeros(4 + _SHOWN, dtype=torch.float64)
    for number, one in enumerate(passes):
        kind, bad = _bad_rows(one)
        if kind and not mine[0]:
            shown = [*dict.fromkeys(_numbers(one)[bad].tolist())][:_SHOWN]
            head = [kind, number, len(bad), len(one.losses)]
            mine[: 4 + len(shown)] = torch.tensor([*head, *(n + 1.0 for n in shown)])
    table = torch.zeros(ranks.world, len(mine), dtype=torch.float64)
    table[ranks.rank] = mine
    dist.all_reduce(table)
    found = [(rank, row.tolist()) for rank, row in enumerate(table) if row[0]]
    if not found:
        return (
            "Repeated row by row, the step gave only finite numbers: most likely a sum over rows or"
            " ranks overflowed."
        )
    if len(found) == ranks.world and all(row[2] == row[3] for _, row in found):
        return _EVERYWHERE[int(min(row[0] for _, row in found))]
    rank, (kind, batch, count, of, *shown) = min(found, key=lambda pair: (pair[1][1], pair[0]))
    numbers = ", ".join(str(int(number) - 1) for number in shown if number)
    more = "" if count <= _SHOWN else ", ..."
    return (
        f"Rank {rank} was first, in its batch {int(batch)} of the step: the {_KINDS[int(kind)]} of"
        f" {int(count)} of {int(of)} rows is not finite. Look at {unit} {numbers}{more} of the"
        " training split, counted from 0 in the order of its table."
    )


def _bad_rows(one: Pass) -> tuple[int, list[int]]:
    """The place in ``_KINDS`` of what is not finite (0: nothing), and the rows that have it."""
    inputs = torch.isfinite(one.rows.numeric.detach()).all(1) & torch.isfinite(one.rows.label)
    finite = [inputs, torch.isfinite(one.losses.detach())]
    # asked of every pass, needed or not: with shards it takes all ranks
    (gradient,) = torch.autograd.grad(one.losses.sum(), [one.rows.numeric], allow_unused=True)
    if gradient is not None:
        finite.append(torch.isfinite(gradient).all(1))
    for kind, fine in enumerate(finite, start=1):
        if not bool(fine.all()):
            return kind, (~fine).nonzero()[:, 0].tolist()
    return 0, []


def _numbers(one: Pass) -> NDArray[np.int64]:
    """[rows]: the number of each row or, of a ranking, of its query."""
    assert one.rows.numbers is not None
    if one.rows.starts is None:
        return one.rows.numbers
    return np.repeat(one.rows.numbers, np.diff(one.rows.starts.cpu().numpy()))
