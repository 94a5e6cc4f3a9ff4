"""Batch norm over logical microbatches: "ghost batch normalization" (Hoffer et al., 2017).

A microbatch is computed whole on one rank, so what it is normalized by is the same in any world.
The running statistics move once a step, by what all ranks saw of it, on all ranks alike.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ml_assets.errors import counted
from ml_assets.training.models.layers import Masks
from ml_assets.training.stop import TeamCodeFailed


class GhostBatchNorm(_BatchNorm):
    """``nn.BatchNorm`` of logical microbatches, with its parameters, buffers and fields.

    While it trains, each microbatch is normalized by its own mean and variance; one that has a
    single value in a channel has no variance, and is normalized as a row that is scored. Without
    microbatches, or in ``eval``, the running statistics normalize: rows stay apart.
    """

    microbatches: tuple[int, ...] | None = None
    """The rows of each microbatch of the pass; None: it scores."""
    recording: bool = False
    """Only in the pass itself: activation checkpointing computes it again, and it counts once."""
    seen: torch.Tensor | None = None
    """What was recorded, float64: values of a channel, [channels] their sums, and of squares."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[n, channels, ...], the rows of the microbatches first, or so many entries of each row.

        Raises:
            TeamCodeFailed: the first dimension is not of the rows.
        """
        self._check_input_dim(input)
        if self.microbatches is None or not self.training:
            return self._by_running(input)
        entries, rest = divmod(len(input), sum(self.microbatches))
        if rest or not entries:
            raise TeamCodeFailed(
                f"{type(self).__bases__[1].__name__} got {tuple(input.shape)} in a pass of"
                f" {counted(sum(self.microbatches), 'row')}; expected the rows as the first"
                " dimension."
            )
        sizes = [(rows * entries, len(list(same))) for rows, same in groupby(self.microbatches)]
        parts = input.split([rows * many for rows, many in sizes])
        found = [self._by_own(x, many) for x, (_, many) in zip(parts, sizes, strict=True)]
        return found[0] if len(found) == 1 else torch.cat(found)

    def _by_own(self, x: torch.Tensor, many: int) -> torch.Tensor:
        """Microbatches of one size, each by its own statistics: as channels of their own."""
        channels = x.shape[1]
        values = x.numel() // (many * channels)
        if values == 1:
            self._record(x.detach().float().view(many, channels), None, values)
            return self._by_running(x)
        wide = x.unflatten(0, (many, -1)).transpose(0, 1).flatten(1, 2)
        mean, variance = x.new_zeros(2, many * channels, dtype=torch.float32)
        weight, bias = self._affine(many)
        made = nn.functional.batch_norm(
            wide, mean, variance, weight, bias, training=True, momentum=1.0, eps=self.eps
        )
        self._record(mean.view(many, channels), variance.view(many, channels), values)
        return made.unflatten(1, (many, channels)).transpose(0, 1).flatten(0, 1)

    def _by_running(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self._affine()
        mean, variance = self.running_mean, self.running_var
        return nn.functional.batch_norm(x, mean, variance, weight, bias, eps=self.eps)

    def _affine(self, times: int = 1) -> list[torch.Tensor | None]:
        """Weight and bias, repeated, in fp32 whatever the pass computes in; None: it has none."""
        both: tuple[torch.Tensor | None, ...] = (self.weight, self.bias)
        return [None if one is None else one.float().repeat(times) for one in both]

    @torch.no_grad()
    def _record(self, mean: torch.Tensor, variance: torch.Tensor | None, values: int) -> None:
        """[microbatches, channels] the means and the unbiased variances of so many values each."""
        if not self.recording:
            return
        means = mean.double()
        squares = values * means.square()
        if variance is not None:
            squares += (values - 1) * variance.double()
        count = means.new_full((1,), values * len(mean))
        found = torch.cat([count, values * means.sum(0), squares.sum(0)])
        self.seen = found if self.seen is None else self.seen + found

    @torch.no_grad()
    def move(self, seen: torch.Tensor) -> None:
        """Move the running statistics by what all ranks recorded in a step; see ``seen``.

        As ``nn.BatchNorm`` does it after a pass over all these rows at once. Fewer than two values
        have no variance, and move nothing.
        """
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None
        count = seen[0]
        sums, squares = seen[1:].chunk(2)
        mean = sums / count.clamp(min=1)
        variance = (squares - count * mean.square()).clamp(min=0) / (count - 1).clamp(min=1)
        moves = count > 1
        self.num_batches_tracked += moves
        tracked = self.num_batches_tracked.clamp(min=1)
        factor = moves * (1 / tracked.double() if self.momentum is None else self.momentum)
        for running, found in ((self.running_mean, mean), (self.running_var, variance)):
            running.copy_(running.double().lerp(found, factor.double()))


class GhostBatchNorm1d(GhostBatchNorm, nn.BatchNorm1d):
    """See ``GhostBatchNorm``."""


class GhostBatchNorm2d(GhostBatchNorm, nn.BatchNorm2d):
    """See ``GhostBatchNorm``."""


class GhostBatchNorm3d(GhostBatchNorm, nn.BatchNorm3d):
    """See ``GhostBatchNorm``."""


_OURS: dict[type[nn.Module], type[GhostBatchNorm]] = {
    nn.BatchNorm1d: GhostBatchNorm1d,
    nn.BatchNorm2d: GhostBatchNorm2d,
    nn.BatchNorm3d: GhostBatchNorm3d,
}


def replace_batch_norm(network: nn.Module) -> list[GhostBatchNorm]:
    """Let every ``nn.BatchNorm1d``, ``2d`` and ``3d`` of a network be ours, wherever it is held.

    Raises:
        TeamCodeFailed: one has no running statistics, or has those of all processes.
    """
    for name, module in network.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            raise TeamCodeFailed(
                f"{name} is an nn.SyncBatchNorm, whose statistics change with the number of"
                " processes. Take nn.BatchNorm1d, 2d or 3d: its statistics are of a microbatch,"
                " the same on any number."
            )
        if type(module) in _OURS:
            if module.running_mean is None:
                raise TeamCodeFailed(
                    f"{name} is an nn.{type(module).__name__} with track_running_stats=False: a"
                    " row's score would depend on the rows beside it. Remove the argument, or take"
                    " nn.GroupNorm or nn.LayerNorm."
                )
            module.__class__ = _OURS[type(module)]
    return norms_of(network)


def norms_of(network: nn.Module) -> list[GhostBatchNorm]:
    """The batch norms of a network that are ours, in its order."""
    return [module for module in network.modules() if isinstance(module, GhostBatchNorm)]


@contextmanager
def microbatches_told(norms: Sequence[GhostBatchNorm], masks: Masks | None) -> Iterator[None]:
    """Tell batch norms of which microbatches the pass within is; None: it scores."""
    for norm in norms:
        norm.microbatches = masks.rows if masks else None
        norm.recording, norm.seen = masks is not None, None
    yield
    for norm in norms:
        norm.recording = False


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

    def move(self, communication: AbstractContextManager[object]) -> None:
        """Move the running statistics, alike on every rank; one message, which all must send.

        Args:
            communication: times the message.
        """
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
