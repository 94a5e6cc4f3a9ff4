"""Processes as one trainer: the group, the strategy, and sums over all ranks."""

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from ml_assets.spec.training import Strategy
from ml_assets.training.models import Network

_TIMEOUT = timedelta(seconds=300)


@dataclass(frozen=True)
class Ranks:
    """This process among the others."""

    rank: int
    world: int
    side: dist.ProcessGroup
    """A group of its own for asynchronous checkpoints: their messages never mix with training's."""


def join() -> Ranks:
    """Join the group that torchrun describes in the environment; alone without one."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo", timeout=_TIMEOUT)
    else:
        dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    side = dist.new_group(backend="gloo", timeout=_TIMEOUT)
    assert isinstance(side, dist.ProcessGroup)
    return Ranks(dist.get_rank(), dist.get_world_size(), side)


def leave() -> None:
    """Leave the group; quiet where it is gone already."""
    if dist.is_initialized():
        dist.destroy_process_group()


def parallelize(network: Network, strategy: Strategy, world: int) -> Network:
    """``shard``: FSDP2 over all ranks. ``replicate``: whole on each rank, gradients are summed.

    The values are real before they are sharded: equal in any world. Gradients are sums, never
    means, so that dividing by the global count is right with ragged shares.
    """
    if strategy == "replicate":
        return network
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("data",))
    fully_shard(network, mesh=mesh)
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return network


def sum_gradients(network: nn.Module, strategy: Strategy, world: int) -> None:
    """Sum the gradients of replicas; FSDP has summed its own during the backward pass."""
    if strategy == "shard" or world == 1:
        return
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    offset = 0
    for gradient in gradients:
        gradient.copy_(flat[offset : offset + gradient.numel()].view_as(gradient))
        offset += gradient.numel()


def total(values: list[float]) -> list[float]:
    """Sum numbers over all ranks, in float64; one message, and none to oneself."""
    if dist.get_world_size() == 1:
        return values
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor)
    return tensor.tolist()
