"""Several processes as one trainer: the group, its device, sums and agreements over all ranks."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed import distributed_c10d

from ml_assets.errors import MlAssetsError
from ml_assets.training.stop import PeerLost, Stopped, peer_trouble

JOIN_SECONDS = 300.0
"""The ranks have so long to find each other, and to take a first step."""
SAVE_SECONDS = 7200.0
"""All may wait so long in a save or a load for one rank's work: a terabyte takes a while."""
_TIMEOUT = timedelta(seconds=JOIN_SECONDS)


@dataclass(frozen=True)
class Ranks:
    """This process among the others."""

    rank: int
    world: int
    side: dist.ProcessGroup
    """A group of its own for asynchronous checkpoints: their messages never mix with training's."""
    device: torch.device
    """The device that this rank computes on."""

    def lanes(self, tensor: int) -> "Ranks":
        """The ranks as rows see them: so many that share one network take the same rows."""
        return replace(self, rank=self.rank // tensor, world=self.world // tensor)


def join() -> Ranks:
    """Join the group of ranks that torchrun describes in the environment; without one, be alone.

    Raises:
        PeerLost: a rank died, or did not come in time.
    """
    device = _device()
    # on a GPU the few numbers of a step still travel by gloo, gradients by NCCL
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    try:
        if "RANK" in os.environ:
            dist.init_process_group(backend, timeout=_TIMEOUT)
        else:
            dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
        side = dist.new_group(backend="gloo", timeout=_TIMEOUT)
    except Exception as error:
        if peer_trouble(error) is None:
            raise
        first_line = str(error).partition("\n")[0]
        raise PeerLost(f"the processes did not find each other: {first_line}") from error
    assert isinstance(side, dist.ProcessGroup)
    distributed_c10d._set_pg_timeout(timedelta(seconds=SAVE_SECONDS), side)
    return Ranks(dist.get_rank(), dist.get_world_size(), side, device)


def wait_at_most(seconds: float, ranks: Ranks) -> None:
    """Let a collective of training fail after so long without a peer, from here on.

    The group of saves keeps its own: ranks write for different times. A hung peer is noticed by
    training, which goes on beside the save, or waits for it in step.
    """
    for group in list(distributed_c10d._world.pg_map):
        if group is not ranks.side and ranks.world > 1:
            distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)


def leave() -> None:
    """Leave a group of one. A larger one stands until the process ends, which must be by ``_exit``.

    torch may wait for itself for ever when it takes a group down: DDP's reducer, the last to hold
    it, joins gloo's threads with the GIL held, and a thread that frees the tensor of the last sum
    asks for the GIL (pytorch issue 56297). At the interpreter's end it aborts for a like reason.
    """
    if dist.is_initialized() and dist.get_world_size() == 1:
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


T = TypeVar("T")


@dataclass(frozen=True)
class _Answer:
    """A rank's answer, as the others hear it."""

    value: Any = None
    error: MlAssetsError | Stopped | OSError | None = None


def on_every_rank(ranks: Ranks, work: Callable[[], T]) -> list[T]:
    """Do the work on this rank and hear what the others came to, in the order of the ranks.

    One message over the side group, which no other thread may use at the time. An error of the
    program itself (any other exception) is raised on its rank alone, and ends the attempt.

    Raises:
        MlAssetsError, Stopped, OSError: the work failed on a rank: the first one's error, on all.
    """
    heard: list[_Answer | None] = [None] * ranks.world
    dist.all_gather_object(heard, _answer(work), group=ranks.side)
    answers = [one for one in heard if one is not None]
    for one in answers:
        if one.error is not None:
            raise one.error
    return [one.value for one in answers]


def on_first_rank(ranks: Ranks, work: Callable[[], T]) -> T:
    """Do the work on the first rank, and hear on all what it came to; see ``on_every_rank``.

    Its words alone travel: gathered, they would be padded for every rank, on every rank.
    """
    heard = [_answer(work) if ranks.rank == 0 else None]
    dist.broadcast_object_list(heard, src=0, group=ranks.side)
    (said,) = heard
    assert said is not None
    if said.error is not None:
        raise said.error
    return said.value


def _answer(work: Callable[[], Any]) -> _Answer:
    try:
        return _Answer(work())
    except (MlAssetsError, Stopped, OSError) as error:
        return _Answer(error=error)
