"""Sends a gradient as two thin matrices (Vogels et al., "PowerSGD", 2019).

The error stays on its rank and is added to the gradient of its next step, so it is state, and lies
in the checkpoints. Another number of ranks divides the unsent parts anew: their sum is the same.
One rank alone sends nothing, and goes on without them.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket

from ml_assets.spec.training import TrainingSpec
from ml_assets.training.telemetry import Stopwatch

_NAME = "powersgd"


class PowerSgd:
    """One rank's part: ``unsent`` is its own, ``basis`` is the same on all ranks.

    Matrices of which the thin ones would be no smaller, and vectors, are sent as they are.
    """

    def __init__(self, network: nn.Module, spec: TrainingSpec, communication: Stopwatch) -> None:
        self.communication = communication
        self._seed, self._rank = spec.seed, spec.communication_rank
        self._names = {id(weight): name for name, weight in network.named_parameters()}
        self._weights = dict(network.named_parameters())
        self.begin()

    def begin(self) -> None:
        """Nothing is unsent, and the first bases are drawn."""
        generator = torch.Generator().manual_seed(self._seed)
        self.unsent: dict[str, torch.Tensor] = {}
        """Name of a parameter -> [rows, columns]."""
        self.basis: dict[str, torch.Tensor] = {}
        """Name of a parameter -> [columns, rank]."""
        for name, weight in self._weights.items():
            rows = weight.shape[0] if weight.dim() > 1 else 1
            columns = weight.numel() // rows
            if (rows + columns) * self._rank < rows * columns:
                drawn = torch.randn(columns, self._rank, generator=generator)
                self.basis[name] = drawn.to(weight.device)
                self.unsent[name] = weight.detach().new_zeros(rows, columns)

    def sum(self, bucket: GradBucket) -> None:
        """Put the sum over the ranks, as far as it is sent, into the gradients of a bucket."""
        plain: list[torch.Tensor] = []
        matrices: dict[str, torch.Tensor] = {}
        for weight, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            name = self._names[id(weight)]
            if name in self.unsent:
                matrices[name] = gradient.view(self.unsent[name].shape).add_(self.unsent[name])
            else:
                plain.append(gradient)
        tall = [gradient @ self.basis[name] for name, gradient in matrices.items()]
        self._summed([*plain, *tall])
        for (name, gradient), product in zip(matrices.items(), tall, strict=True):
            tall_one = torch.linalg.qr(product).Q
            self.basis[name] = gradient.T @ tall_one
            torch.sub(gradient, tall_one @ self.basis[name].T, out=self.unsent[name])
            product.copy_(tall_one)
        self._summed([self.basis[name] for name in matrices])
        for (name, gradient), tall_one in zip(matrices.items(), tall, strict=True):
            torch.matmul(tall_one, self.basis[name].T, out=gradient)

    def _summed(self, tensors: list[torch.Tensor]) -> None:
        """Sum each over the ranks, in place, by one message."""
        if not tensors:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with self.communication:
            dist.all_reduce(flat)
        for tensor, found in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(found.view(tensor.shape))

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds of it; that of each rank by a name of its own."""
        return self._named({dist.get_rank(): self.unsent}, self.basis)

    def of(self, world: int) -> dict[str, Any]:
        """Return what to read of a checkpoint that so many ranks wrote: this rank's part of it."""
        mine = range(dist.get_rank(), world, dist.get_world_size())
        parts = {rank: _like(self.unsent) for rank in mine}
        return self._named(parts, _like(self.basis))

    def take(self, state: Mapping[str, Any]) -> None:
        """Go on from what was read."""
        found = state[_NAME]
        self.basis = dict(found["basis"])
        for name, unsent in self.unsent.items():
            unsent.zero_()
            for part in found["unsent"].values():
                unsent.add_(part[name])

    def _named(
        self, parts: Mapping[int, dict[str, torch.Tensor]], basis: dict[str, torch.Tensor]
    ) -> dict[str, Any]:
        unsent = {f"rank {rank}": part for rank, part in parts.items()}
        return {_NAME: {"unsent": unsent, "basis": basis}}


def _like(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: torch.empty_like(tensor) for name, tensor in tensors.items()}


def send_compressed(state: PowerSgd, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The hook of torch's replica."""
    state.sum(bucket)
    done = torch.futures.Future[torch.Tensor]()
    done.set_result(bucket.buffer())
    return done
