"""Batches by position: which rows a rank takes at a step, as tensors."""

from dataclasses import dataclass

import numpy as np
import torch

from ml_assets.training.data import Rows, SplitArrays
from ml_assets.training.models.layers import Masks
from ml_assets.training.sampler import microbatch_seed, permuted


@dataclass(frozen=True)
class Tensors:
    """Rows as tensors: numeric [n, f] float32, categorical [n, c] int32, label [n]."""

    numeric: torch.Tensor
    categorical: torch.Tensor
    label: torch.Tensor


def tensors(rows: Rows) -> Tensors:
    """The same rows, for a network."""
    arrays = (rows.numeric, rows.categorical, rows.label)
    return Tensors(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))


@dataclass(frozen=True)
class Batches:
    """``microbatches of one rank's share of a global step``, as a function of the step alone."""

    rows: SplitArrays
    seed: int
    batch_size: int
    microbatches: int

    @property
    def steps_per_epoch(self) -> int:
        """The last step of an epoch may be short: every row comes exactly once an epoch."""
        return -(-len(self.rows) // self.batch_size)

    def share(self, step: int, rank: int, world: int) -> tuple[Tensors, Masks, int]:
        """Rank r of w takes the microbatches r, r + w, ...; with them, how many rows count.

        A rank with nothing to do gets one row that does not count: all ranks must run.
        """
        epoch, place = divmod(step, self.steps_per_epoch)
        size = self.batch_size // self.microbatches
        ranges, seeds = [], []
        for microbatch in range(rank, self.microbatches, world):
            start = min(place * self.batch_size + microbatch * size, len(self.rows))
            stop = min(start + size, len(self.rows), (place + 1) * self.batch_size)
            if stop > start:
                ranges.append(np.arange(start, stop))
                seeds.append(microbatch_seed(self.seed, step, microbatch))
        counted = sum(len(span) for span in ranges)
        if not ranges:
            ranges, seeds = [np.zeros(1, np.int64)], [0]
        numbers = permuted(np.concatenate(ranges), len(self.rows), self.seed, epoch)
        masks = Masks(tuple(seeds), tuple(len(span) for span in ranges))
        return tensors(self.rows.take(numbers)), masks, counted


def lost_share(microbatches: int, world: int) -> float:
    """Share of a step that ranks spend waiting where ``world`` does not divide ``microbatches``."""
    most = -(-microbatches // world)
    return 1 - microbatches / (most * world)
