"""Batches by position: the rows of a rank at a step, as tensors."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from ml_assets.spec.training_program.events import DrawnRows
from ml_assets.store.block_order import BlockOrder
from ml_assets.store.row_order import key, mixed, permuted
from ml_assets.training.models.layers import Masks
from ml_assets.training.rows.arrays import Rows, SplitArrays
from ml_assets.training.rows.oversampling import (
    OversampleIndex,
    drawn_rows,
    rows_of_epoch,
)


@dataclass(frozen=True)
class Tensors:
    """Rows as tensors: numeric [n, f] float32, categorical [n, c] int32, label [n]."""

    numeric: torch.Tensor
    categorical: torch.Tensor
    label: torch.Tensor
    starts: torch.Tensor | None = None
    """As ``Rows.starts``."""
    numbers: NDArray[np.int64] | None = None
    """[units] where they lie in the split, to count them and to name them; None: nobody asks."""

    def to(self, device: torch.device) -> "Tensors":
        """The same rows on a device; themselves where they are there."""
        numeric, categorical, label = (
            tensor.to(device, non_blocking=True)
            for tensor in (self.numeric, self.categorical, self.label)
        )
        starts = None if self.starts is None else self.starts.to(device)
        return Tensors(numeric, categorical, label, starts, self.numbers)

    def pinned(self) -> "Tensors":
        """The same rows in memory that a GPU reads while its host goes on."""
        numeric, categorical, label = (
            tensor.pin_memory() for tensor in (self.numeric, self.categorical, self.label)
        )
        return replace(self, numeric=numeric, categorical=categorical, label=label)


def tensors(rows: Rows) -> Tensors:
    """The same rows, for a network."""
    arrays = (rows.numeric, rows.categorical, rows.label)
    numeric, categorical, label = (torch.from_numpy(np.ascontiguousarray(a)) for a in arrays)
    starts = None if rows.starts is None else torch.from_numpy(rows.starts)
    return Tensors(numeric, categorical, label, starts)


@dataclass(frozen=True)
class Batches:
    """The microbatches of one rank's share of a global step, as a function of the step alone."""

    rows: SplitArrays
    seed: int
    batch_size: int
    microbatches: int
    """The microbatches of a batch."""
    accumulate: int = 1
    """Batches in a global step."""
    oversampled: tuple[OversampleIndex, ...] = ()
    """The rows of rare classes, which are drawn more than once."""
    blocks: BlockOrder | None = None
    """The order of an epoch's rows; None: any row may come at any place."""
    epochs: int = 1
    """Rows that are fetched are fetched ahead for no later one."""

    @property
    def draws(self) -> int:
        """The draws of an epoch: every unit exactly once, but for those that are drawn again."""
        return self.rows.units + sum(more.draws for more in self.oversampled)

    @property
    def steps_per_epoch(self) -> int:
        """The last step of an epoch may be short: an epoch has each of its draws exactly once."""
        return -(-self.draws // (self.batch_size * self.accumulate))

    def rows_of_epoch(self, epoch: int) -> DrawnRows:
        """What the steps of this epoch, from 0, are to draw together."""
        return rows_of_epoch(self.rows.units, self.oversampled, epoch)

    def first(self, count: int) -> Rows:
        """The first rows of the first batch."""
        places = np.arange(min(count, self.draws))
        found = self.rows.take_units(self._drawn(places, epoch=0))
        return Rows(found.numeric[:count], found.categorical[:count], found.label[:count])

    def share(self, step: int, rank: int, world: int, batch: int = 0) -> tuple[Tensors, Masks, int]:
        """Rank r of w takes the microbatches r, r + w, ...; with them, how many rows count.

        A rank with nothing to do gets one unit that does not count: all ranks must run.

        Args:
            batch: number of the batch within the global step.
        """
        epoch, place = divmod(step, self.steps_per_epoch)
        draws = self.draws
        size = self.batch_size // self.microbatches
        begin = place * self.batch_size * self.accumulate
        first = batch * self.microbatches
        ranges, seeds = [], []
        for microbatch in range(first + rank, first + self.microbatches, world):
            start = min(begin + microbatch * size, draws)
            stop = min(start + size, draws)
            if stop > start:
                ranges.append(np.arange(start, stop))
                seeds.append(_microbatch_seed(self.seed, step, microbatch))
        if self.rows.fetches and batch == 0:
            self._expect(epoch, place, range(rank, self.microbatches, world))
        idle = not ranges
        if idle:
            ranges, seeds = [np.zeros(1, np.int64)], [0]
        numbers = self._drawn(np.concatenate(ranges), epoch)
        begins = np.cumsum([0, *(len(span) for span in ranges[:-1])])
        rows = np.add.reduceat(self.rows.rows_of(numbers), begins)
        masks = Masks(tuple(seeds), tuple(rows.tolist()))
        taken = replace(tensors(self.rows.take_units(numbers)), numbers=numbers)
        return taken, masks, 0 if idle else sum(masks.rows)

    def _expect(self, epoch: int, place: int, lanes: range) -> None:
        """Tell the rows which blocks the step reads, and which come next."""
        assert self.blocks is not None
        count = self.accumulate * self.batch_size // self.microbatches
        reads = self.blocks.reads(place * count, count, lanes, self.seed, epoch, self.epochs)
        self.rows.expect(*reads)

    def _drawn(self, places: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """The units at these places of the epoch's order."""
        if self.blocks is not None:
            return self.blocks.permuted(places, self.seed, epoch)
        order = permuted(places, self.draws, self.seed, epoch)
        return drawn_rows(order, self.rows.units, self.oversampled, epoch)


def _microbatch_seed(seed: int, step: int, microbatch: int) -> int:
    """The seed of everything random in one microbatch."""
    return mixed(key(seed, step, microbatch + 1_000_003)) >> 1
