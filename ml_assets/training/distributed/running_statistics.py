"""Batch norm over several ranks: the running statistics move by what all of them saw in a step."""

import torch
import torch.distributed as dist
from torch import nn

from ml_assets.training.models.batch_norm import GhostBatchNorm, norms_of
from ml_assets.training.telemetry import Stopwatch


class RunningStatistics:
    """What the batch norms of a network see in the passes of a step, on this rank."""

    def __init__(self, network: nn.Module) -> None:
        self._norms = norms_of(network)
        self._seen: torch.Tensor | None = None
        """All norms in one, float64; None: no pass yet, or no norm."""

    def begin(self) -> None:
        """Forget what was seen: a step begins."""
        self._seen = None

    def add(self, *, counted: bool) -> None:
        """Take what the last pass saw; where no row of it counts, nothing."""
        if not self._norms:
            return
        found = torch.cat([_of_pass(norm) for norm in self._norms])
        found = found if counted else torch.zeros_like(found)
        self._seen = found if self._seen is None else self._seen + found

    def move(self, communication: Stopwatch) -> None:
        """Move the running statistics, alike on every rank; one message, which all must send."""
        if self._seen is None:
            return
        if dist.get_world_size() > 1:
            with communication:
                dist.all_reduce(self._seen)
        sizes = [1 + 2 * norm.num_features for norm in self._norms]
        for norm, seen in zip(self._norms, self._seen.split(sizes), strict=True):
            norm.move(seen)


def _of_pass(norm: GhostBatchNorm) -> torch.Tensor:
    seen, norm.seen = norm.seen, None
    if seen is None:  # the pass went round it
        assert norm.running_mean is not None
        seen = norm.running_mean.new_zeros(1 + 2 * norm.num_features, dtype=torch.float64)
    return seen
