"""Processes as one trainer: the group, its device, and sums over all ranks."""

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

_TIMEOUT = timedelta(seconds=300)


@dataclass(frozen=True)
class Ranks:
    """This process among the others."""

    rank: int
    world: int
    side: dist.ProcessGroup
    """A group of its own for asynchronous checkpoints: their messages never mix with training's."""
    device: torch.device
    """Where this rank computes."""


def join() -> Ranks:
    """Join the group that torchrun describes in the environment; alone without one."""
    device = _device()
    # on a GPU the few numbers of a step still travel by gloo, gradients by NCCL
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    if "RANK" in os.environ:
        dist.init_process_group(backend, timeout=_TIMEOUT)
    else:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    side = dist.new_group(backend="gloo", timeout=_TIMEOUT)
    assert isinstance(side, dist.ProcessGroup)
    return Ranks(dist.get_rank(), dist.get_world_size(), side, device)


def leave() -> None:
    """Leave the group; quiet where it is gone already."""
    if dist.is_initialized():
        dist.destroy_process_group()


def processes_here() -> int:
    """Processes of this machine, as torchrun started them."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _device() -> torch.device:
    """A GPU where each process of this machine has one of its own, else the CPU."""
    if torch.cuda.is_available() and torch.cuda.device_count() >= processes_here():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        return device
    return torch.device("cpu")


def total(values: list[float]) -> list[float]:
    """Sum numbers over all ranks, in float64; one message, and none to oneself."""
    if dist.get_world_size() == 1:
        return values
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor)
    return tensor.tolist()
