"""Tensor parallelism: ranks share each block of a network, its heads and the width of its layers.

After Shoeybi et al., "Megatron-LM" (2019). A block's input and output are whole on every rank, with
two sums per block and direction. Each split weight keeps its name and its whole shape: a checkpoint
of any number of ranks is one of any other.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.nn.functional import linear

from ml_assets.training.models.network import Network, Part
from ml_assets.training.telemetry import Stopwatch


def part(network: Network, mesh: DeviceMesh, communication: Stopwatch) -> None:
    """Part the layers of each block over the ranks of a mesh of one dimension."""
    ways: dict[Part, Callable[..., torch.Tensor]] = {
        "heads": _heads,
        "columns": _columns,
        "rows": _rows,
    }
    for block in network.units():
        for name, way in network.parts.items():
            layer = block.get_submodule(name)
            assert isinstance(layer, nn.Linear) and layer.bias is None
            placed = [Shard(1 if way == "rows" else 0)]
            layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, placed))
            layer.forward = partial(ways[way], layer, mesh, communication)


def _columns(
    layer: nn.Linear, mesh: DeviceMesh, communication: Stopwatch, x: torch.Tensor
) -> torch.Tensor:
    """The outputs of this rank, of inputs that are whole."""
    return linear(_entered(x, mesh, communication), _weight(layer).to_local())


def _heads(
    layer: nn.Linear, mesh: DeviceMesh, communication: Stopwatch, x: torch.Tensor
) -> torch.Tensor:
    """Queries, keys and values of this rank's heads.

    The three matrices lie in one, whose rows are parted in order: each rank gathers it for as long
    as it is used, and takes the rows of its heads from each.
    """
    with communication:
        whole = _weight(layer).full_tensor(grad_placements=[Partial()])
    rows = whole.unflatten(0, (3, mesh.size(), -1))[:, mesh.get_local_rank()]
    return linear(_entered(x, mesh, communication), rows.flatten(0, 1))


def _rows(
    layer: nn.Linear, mesh: DeviceMesh, communication: Stopwatch, x: torch.Tensor
) -> torch.Tensor:
    """All outputs, of inputs of which each rank has a part."""
    return _summed(linear(x, _weight(layer).to_local()), mesh, communication)


def _weight(layer: nn.Linear) -> DTensor:
    weight = layer.weight
    assert isinstance(weight, DTensor)
    return weight


class _Enter(torch.autograd.Function):
    """Hand on what is whole; its gradient is the sum of the ranks' parts."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, group: dist.ProcessGroup, communication: Stopwatch
    ) -> torch.Tensor:
        ctx.taken = group, communication
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _sum(gradients[0], *ctx.taken), None, None


class _Sum(torch.autograd.Function):
    """Sum the ranks' parts; the gradient of each is that of the sum."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, group: dist.ProcessGroup, communication: Stopwatch
    ) -> torch.Tensor:
        return _sum(x, group, communication)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return gradients[0], None, None


def _entered(x: torch.Tensor, mesh: DeviceMesh, communication: Stopwatch) -> torch.Tensor:
    entered = _Enter.apply(x, mesh.get_group(), communication)
    assert isinstance(entered, torch.Tensor)
    return entered


def _summed(x: torch.Tensor, mesh: DeviceMesh, communication: Stopwatch) -> torch.Tensor:
    summed = _Sum.apply(x, mesh.get_group(), communication)
    assert isinstance(summed, torch.Tensor)
    return summed


def _sum(x: torch.Tensor, group: dist.ProcessGroup, communication: Stopwatch) -> torch.Tensor:
    found = x.contiguous().clone()
    with communication:
        dist.all_reduce(found, group=group)
    return found
