"""FSDP's own collectives, timed: they run inside the forward and the backward pass."""

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.tensor import DTensor

from ml_assets.training.models import Network
from ml_assets.training.telemetry import Stopwatch


def time_collectives(network: Network, communication: Stopwatch) -> None:
    """Time the collectives of a sharded network; of another one, nothing.

    On the CPU the caller waits for each, so this is the time that a step loses by them.
    """
    replicas = any(isinstance(p, DTensor) and p.device_mesh.ndim > 1 for p in network.parameters())
    for module in network.modules():
        if isinstance(module, FSDPModule):
            scatter = TimedReduceScatter(communication)
            module.set_custom_all_gather(TimedAllGather(communication))
            module.set_custom_reduce_scatter(scatter)
            if replicas:
                module.set_all_reduce_hook(scatter.replicas_are_equal)


class _Buffers:
    """Memory for a collective: as FSDP gets it by itself."""

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class TimedAllGather(_Buffers, AllGather):
    """Parts of the weights become whole."""

    def __init__(self, communication: Stopwatch) -> None:
        self._communication = communication

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        with self._communication:
            return dist.all_gather_single(
                output_tensor, input_tensor, group=group, async_op=async_op
            )


class TimedReduceScatter(_Buffers, ReduceScatter):
    """Gradients are summed, and each rank keeps its part."""

    def __init__(self, communication: Stopwatch) -> None:
        self._communication = communication
        self._done = 0.0

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp | dist.ReduceOp.RedOpType,
        async_op: bool = False,
    ) -> dist.Work | None:
        with self._communication:
            work = dist.reduce_scatter_single(
                output_tensor,
                input_tensor,
                op=op,  # pyright: ignore[reportArgumentType]  torch's own two types of it
                group=group,
                async_op=async_op,
            )
        self._done = time.perf_counter()
        return work

    def replicas_are_equal(self, _: torch.Tensor) -> None:
        """FSDP calls it after the all-reduce between the replicas, which follows the scatter."""
        self._communication.add(time.perf_counter() - self._done)
