"""How one network is spread over the ranks: replicated, sharded, or both.

Every strategy sums gradients and never averages them, so that dividing by the global weight is
right with ragged shares. The network keeps its own names, so that a checkpoint of one strategy is
one of any other.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from ml_assets.spec.training import TrainingSpec, split_of
from ml_assets.training.distributed.collectives import time_collectives
from ml_assets.training.distributed.precision import fsdp_policy, lowered
from ml_assets.training.distributed.ranks import Ranks, processes_here
from ml_assets.training.models import Network
from ml_assets.training.stop import BadRequest
from ml_assets.training.telemetry import Stopwatch

_UNIT = 1_000_000
"""Parameters from which a layer is gathered by itself: one unit costs milliseconds a step."""


def parallelize(
    network: Network, spec: TrainingSpec, ranks: Ranks, communication: Stopwatch
) -> nn.Module:
    """Spread the network; what comes back is called for logits, by all ranks alike.

    ``replicate``: whole on each rank. ``shard``: FSDP2 over all ranks. ``hybrid``: sharded within a
    node, replicated over nodes. The values are real before they are spread: equal in any world.

    Args:
        communication: times the collectives, which run inside the passes.

    Raises:
        BadRequest: ``hybrid`` in a world that cannot be split.
    """
    if spec.strategy == "replicate":
        forward = lowered(network, spec.precision)
        return _replica(forward, communication) if ranks.world > 1 else forward
    mesh = _mesh(spec, ranks)
    for layer in network.layers:
        if sum(weight.numel() for weight in layer.parameters()) >= _UNIT:
            fully_shard(layer, mesh=mesh, mp_policy=fsdp_policy(spec.precision, root=False))
    fully_shard(network, mesh=mesh, mp_policy=fsdp_policy(spec.precision, root=True))
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    time_collectives(network, communication)
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


def local_gradients(network: nn.Module) -> list[torch.Tensor]:
    """The part of each gradient that lies on this rank; to change them is to change those."""
    found = [p.grad for p in network.parameters() if p.grad is not None]
    return [g.to_local() if isinstance(g, DTensor) else g for g in found]


def copies(network: nn.Module, world: int) -> int:
    """How many ranks hold the same part of a gradient."""
    first = next(iter(network.parameters()))
    if not isinstance(first, DTensor):
        return world
    sizes = zip(first.placements, first.device_mesh.shape, strict=True)
    return math.prod(size for placement, size in sizes if placement.is_replicate())


def _replica(forward: nn.Module, communication: Stopwatch) -> nn.Module:
    replica = DistributedDataParallel(forward, gradient_as_bucket_view=True)
    replica.register_comm_hook(communication, _sum)
    return replica


def _sum(communication: Stopwatch, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """In place of torch's mean; after the last bucket, the backward pass has only to wait."""
    communication.asked()
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


def _mesh(spec: TrainingSpec, ranks: Ranks) -> DeviceMesh:
    if spec.strategy == "shard":
        return init_device_mesh(ranks.device.type, (ranks.world,), mesh_dim_names=("data",))
    split = split_of(ranks.world, processes_here())
    if split is None:
        raise BadRequest(
            f"training.strategy 'hybrid' cannot split {ranks.world} processes into equal groups of"
            " two or more. Start 4, 6, 8 or 9, or set training.strategy to shard or replicate."
        )
    return init_device_mesh(ranks.device.type, split, mesh_dim_names=("nodes", "data"))
