"""Spreads one network over the ranks: replicated, sharded, or both.

Every strategy sums gradients and never averages them, so dividing by the global weight is right
with ragged shares. The network keeps its own names, so a checkpoint of one strategy is one of any
other.
"""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.tensor import DTensor
from torch.func import functional_call
from torch.nn.parallel import DistributedDataParallel

from ml_assets.errors import counted
from ml_assets.spec.parallel import split_of
from ml_assets.spec.training import Precision, TrainingSpec
from ml_assets.training.distributed.blocks import compile_blocks, recompute
from ml_assets.training.distributed.powersgd import PowerSgd, send_compressed
from ml_assets.training.distributed.ranks import Ranks, processes_here
from ml_assets.training.distributed.tensor import part
from ml_assets.training.models.layers import Masks
from ml_assets.training.models.network import Network, is_large
from ml_assets.training.stop import BadRequest
from ml_assets.training.telemetry import Stopwatch


def parallelize(
    network: Network, spec: TrainingSpec, ranks: Ranks, communication: Stopwatch
) -> nn.Module:
    """Spread the network; what comes back is called for logits, by all ranks alike.

    ``replicate``: whole on each rank. ``shard``: FSDP2 over all ranks. ``hybrid``: sharded within a
    node, replicated over nodes. The values are real before they are spread: equal in any world.

    Args:
        communication: times the collectives, which run inside the passes.

    Raises:
        BadRequest: a world that cannot be split as the spec says; no layer to compute again; no
            compiler.
    """
    if spec.compile:
        compile_blocks(network)
    recompute(network, spec.activation_checkpointing)
    if spec.strategy == "replicate":
        forward = lowered(network, spec.precision)
        return _replica(network, forward, spec, communication) if ranks.world > 1 else forward
    mesh = _mesh(spec, ranks)
    large = [unit for unit in network.units() if is_large(unit)]
    if spec.parallel.tensor > 1:
        part(network, mesh["tensor"], communication)
        mesh = mesh["data"]
    offload = _offload(spec, ranks)
    for layer in large:
        low = fsdp_policy(spec, root=False)
        fully_shard(layer, mesh=mesh, mp_policy=low, offload_policy=offload)
    root = fsdp_policy(spec, root=True)
    fully_shard(network, mesh=mesh, mp_policy=root, offload_policy=offload)
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    time_collectives(network, communication, replicas=spec.strategy == "hybrid")
    return network


@contextmanager
def summing(forward: nn.Module, *, now: bool) -> Iterator[None]:
    """Passes within sum gradients over the ranks, or (not ``now``) add to this rank's own."""
    if isinstance(forward, DistributedDataParallel) and not now:
        with forward.no_sync():
            yield
        return
    if isinstance(forward, FSDPModule):
        forward.set_requires_gradient_sync(now)
    yield


def local_gradients(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The part of each gradient that lies on this rank; to change them is to change those."""
    found = [p.grad for p in parameters if p.grad is not None]
    return [g.to_local() if isinstance(g, DTensor) else g for g in found]


def copies(parameter: torch.Tensor, world: int) -> int:
    """The number of ranks that hold the same part of a parameter, and of its gradient."""
    if not isinstance(parameter, DTensor):
        return world
    mesh = parameter.device_mesh
    sizes = zip(parameter.placements, mesh.shape, strict=True)
    same = math.prod(size for placement, size in sizes if placement.is_replicate())
    return same * (world // mesh.size())  # other ranks may have a mesh of their own


class Replica(DistributedDataParallel):
    """Torch's replica; what is sent in place of gradients may have a state."""

    powersgd: PowerSgd | None = None

    def begin(self) -> None:
        """Forget what passes before the first step left unsent."""
        if self.powersgd is not None:
            self.powersgd.begin()


def powersgd_of(forward: nn.Module) -> PowerSgd | None:
    """The state of a replica's hook that belongs to a checkpoint; None: there is none."""
    return forward.powersgd if isinstance(forward, Replica) else None


def _replica(
    network: Network, forward: nn.Module, spec: TrainingSpec, communication: Stopwatch
) -> Replica:
    # buffers are equal on all ranks by themselves: see RunningStatistics
    replica = Replica(forward, gradient_as_bucket_view=True, forward_sync_buffers=False)
    if spec.communication_hook == "powersgd":
        replica.powersgd = PowerSgd(network, spec, communication)
        replica.register_comm_hook(replica.powersgd, send_compressed)
        return replica
    low = spec.gradient_precision == "bf16"
    replica.register_comm_hook(communication, _sum_rounded if low else _sum)
    return replica


def _sum(communication: Stopwatch, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Sum a bucket, in place of torch's mean; after the last one the backward pass only waits."""
    communication.asked()
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


def _sum_rounded(
    communication: Stopwatch, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """The same, sent and summed in bf16."""
    communication.asked()
    work = dist.all_reduce(bucket.buffer().to(torch.bfloat16), async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: bucket.buffer().copy_(done.value()[0]))


def _mesh(spec: TrainingSpec, ranks: Ranks) -> DeviceMesh:
    tensor = spec.parallel.tensor
    if ranks.world % tensor:
        raise BadRequest(
            f"training.parallel.tensor {tensor} must divide the {counted(ranks.world, 'process')}."
            " Start a multiple of it, or remove it."
        )
    if tensor > 1:
        shape, names = (ranks.world // tensor, tensor), ("data", "tensor")
        return init_device_mesh(ranks.device.type, shape, mesh_dim_names=names)
    if spec.strategy == "shard":
        return init_device_mesh(ranks.device.type, (ranks.world,), mesh_dim_names=("data",))
    split = split_of(ranks.world, processes_here())
    if split is None:
        raise BadRequest(
            f"training.strategy 'hybrid' cannot split {counted(ranks.world, 'process')} into equal"
            " groups of two or more. Start 4, 6, 8 or 9, or set training.strategy to shard or"
            " replicate."
        )
    return init_device_mesh(ranks.device.type, split, mesh_dim_names=("nodes", "data"))


_DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


class Lowered(nn.Module):
    """Calls a network with its weights and inputs rounded to ``dtype``; logits are fp32."""

    def __init__(self, network: Network, dtype: torch.dtype) -> None:
        super().__init__()
        self.network = network
        self.dtype = dtype

    def forward(
        self, numeric: torch.Tensor, categorical: torch.Tensor, masks: Masks | None
    ) -> torch.Tensor:
        low = {name: weight.to(self.dtype) for name, weight in self.network.named_parameters()}
        inputs = (numeric.to(self.dtype), categorical, masks)
        return functional_call(self.network, low, inputs).float()


def lowered(network: Network, precision: Precision) -> nn.Module:
    """The module to call for logits: the network itself in fp32."""
    return network if precision == "fp32" else Lowered(network, _DTYPES[precision])


def fsdp_policy(spec: TrainingSpec, *, root: bool) -> MixedPrecisionPolicy:
    """Weights are gathered and used in the precision, gradients summed in theirs; logits fp32."""
    summed = _DTYPES[spec.gradient_precision]
    if spec.precision == "fp32":
        return MixedPrecisionPolicy(reduce_dtype=None if summed == torch.float32 else summed)
    logits = torch.float32 if root else None
    return MixedPrecisionPolicy(_DTYPES[spec.precision], summed, logits)


def _offload(spec: TrainingSpec, ranks: Ranks) -> OffloadPolicy:
    """What lies in the host's memory; where that is where all of it is computed, nothing moves."""
    return (
        CPUOffloadPolicy() if spec.cpu_offload and ranks.device.type == "cuda" else OffloadPolicy()
    )


def time_collectives(network: Network, communication: Stopwatch, *, replicas: bool) -> None:
    """Time the collectives of a sharded network; of another one, nothing.

    On the CPU the caller waits for each, so this is the time that a step loses by them.
    """
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
    """A reduce-scatter that is timed: gradients are summed, and each rank keeps its part."""

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
