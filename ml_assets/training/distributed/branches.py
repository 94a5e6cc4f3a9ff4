"""Whether all ranks go through the same parameters: one that skips a branch would leave the others
waiting in a sum that it never joins, or would have its own numbers added to another's."""

import torch
import torch.distributed as dist
from torch import nn

from ml_assets.training.distributed.ranks import Ranks
from ml_assets.training.stop import RanksDiffer


def hold_together(loss: torch.Tensor, network: nn.Module, ranks: Ranks, step: int) -> None:
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
