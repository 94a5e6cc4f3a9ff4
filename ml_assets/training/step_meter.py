"""Measures a training step by step over all ranks, and decides when to report."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from ml_assets.training.distributed.strategies import copies
from ml_assets.training.models.network import Network
from ml_assets.training.step import Step
from ml_assets.training.telemetry import (
    Spent,
    Times,
    Window,
    gpu_utilization_pct,
    memory_held_mb,
    memory_peak_mb,
)

LIVE_SECONDS = 10.0
"""Metrics are reported this often between two evaluations."""


@dataclass
class Meter:
    """One rank's measurements since the last evaluation, and since the last report.

    At an evaluation one message brings those of all ranks together; in between nothing is asked of
    the others, and the times reported are this rank's own.
    """

    network: Network
    times: Times
    device: torch.device
    """The device that this rank computes on."""
    _window: Window = field(default_factory=Window)
    _lately: Window = field(default_factory=Window)
    _reported: float = field(default_factory=time.monotonic)
    _update: tuple[float, float] | None = None
    """(squared norm of the last update, of the weights before it): this rank's part."""

    def take(self, step: Callable[[], Step], weigh: bool) -> Step:
        """Take a step and measure it.

        Args:
            weigh: compare the weights after it with those before: asked before an evaluation.
        """
        before = _local(self.network) if weigh else None
        self.times.of(0.0)  # rows that were fetched to be shown, say, are of no step
        began = time.perf_counter()
        done = step()
        spent = self.times.of(time.perf_counter() - began)
        self._window.take(done.loss, done.rows, spent)
        self._lately.take(done.loss, done.rows, spent)
        self._update = _squares(self.network, before) if before else None
        return done

    @property
    def first_loss(self) -> float:
        """The loss of the first step since the last evaluation."""
        return self._window.losses[0]

    @property
    def report_is_due(self) -> bool:
        """Return whether a reader would wonder by now if training still goes on."""
        return time.monotonic() - self._reported >= LIVE_SECONDS

    def live(self) -> dict[str, float]:
        """Means over the steps since anything was reported."""
        found = self._known(self._lately.metrics())
        self._lately, self._reported = Window(), time.monotonic()
        return found

    def evaluated(self) -> dict[str, float]:
        """Means over the steps since the last evaluation, and what all ranks know together."""
        found = self._known({**self._window.metrics(), **self._of_all_ranks()})
        self._window, self._lately, self._reported = Window(), Window(), time.monotonic()
        return found

    def _known(self, found: dict[str, float]) -> dict[str, float]:
        """Without what was not measured: a GPU's collectives run while the host goes on."""
        if self.device.type == "cuda":
            del found["communication_share"]
        return {name: value for name, value in found.items() if not math.isnan(value)}

    def _of_all_ranks(self) -> dict[str, float]:
        """Waiting, memory, the GPU's, and the update ratio: by one message, once an evaluation."""
        update, weights = self._update or (math.nan, math.nan)
        gpu, gpu_memory = _gpu(self.device)
        fetched = self.times.fetched_bytes() / 1e6 if self.times.fetched_bytes else math.nan
        own = (memory_peak_mb(), memory_held_mb() + _tensors_mb(self.device))
        mine = [*self._window.spent, *own, gpu_memory, gpu, update, weights, fetched]
        columns = list(zip(*_each_rank(mine), strict=True))
        whole = len(Spent._fields)
        memory, held, memories, busy, updates, norms, fetches = columns[whole:]
        spent = Spent(*map(sum, columns[:whole]))
        return {
            **spent.shares(),
            "data_loading_latency_ms": 1e3 * spent.data / (len(memory) * self._window.steps),
            "fetched_mb": sum(fetches),
            "memory_held_mb": max(held),
            "memory_peak_mb": max(memory),
            "memory_total_mb": sum(memory),
            "gpu_memory_peak_mb": max(memories),
            "gpu_utilization_pct": sum(busy) / len(busy),
            "update_ratio": math.sqrt(sum(updates) / max(sum(norms), 1e-300)),
        }


def _each_rank(mine: list[float]) -> list[list[float]]:
    """Equally many numbers of every rank, by rank."""
    row = torch.tensor(mine, dtype=torch.float64)
    rows = [torch.empty_like(row) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, row)
    return [one.tolist() for one in rows]


def _gpu(device: torch.device) -> tuple[float, float]:
    """Utilization in percent, and the most memory in tensors in MB; NaN where there is no GPU."""
    if device.type != "cuda":
        return math.nan, math.nan
    busy = gpu_utilization_pct(str(torch.cuda.get_device_properties(device).uuid))
    memory = torch.cuda.max_memory_allocated(device) / 1e6
    return (math.nan if busy is None else busy), memory


def _tensors_mb(device: torch.device) -> float:
    """What tensors hold of a GPU's memory now, in MB."""
    return torch.cuda.memory_allocated(device) / 1e6 if device.type == "cuda" else 0.0


def _local(network: Network) -> list[torch.Tensor]:
    """A copy of the weights that lie on this rank."""
    return [_on_this_rank(p).detach().clone() for p in network.parameters()]


def _squares(network: Network, before: list[torch.Tensor]) -> tuple[float, float]:
    """Sums of squares of the update and of the weights before it, such that ranks can be added."""
    update = weights = 0.0
    for parameter, old in zip(network.parameters(), before, strict=True):
        new, same = _on_this_rank(parameter), copies(parameter, dist.get_world_size())
        update += float((new.detach() - old).double().square().sum()) / same
        weights += float(old.double().square().sum()) / same
    return update, weights


def _on_this_rank(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
