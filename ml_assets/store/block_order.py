"""The order of an epoch that reads few places at a time: ``training.order: blocks``.

Each microbatch of a step has its own lane: its share of the epoch's blocks. So a rank, which takes
certain microbatches, reads only the blocks of their lanes. The place of each unit is a function of
(seed, epoch, position), whatever the number of ranks.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.training import TrainingSpec
from ml_assets.store.row_order import AT_ONCE, key, mixed, permuted

_BLOCKS, _LANE, _WINDOW = 2_000_003, 2_000_017, 2_000_029
"""Set the draws of blocks, lanes and windows apart from all others of a seed."""


class Window(NamedTuple):
    """The units that a lane mixes with each other, by their places in the lane."""

    epoch: int
    lane: int
    number: int
    first: int
    last: int


class BlockOrder:
    """Blocks in a random order, cut into lanes; in each window of a lane the units are mixed.

    Args:
        shards: units of each shard; no block lies in two of them.
        block: units of a block; the last one of a shard may have fewer.
        window: blocks whose units are mixed.
        lanes: the microbatches of a batch.
        share: units of a microbatch.
    """

    def __init__(
        self, shards: Sequence[int], block: int, window: int, lanes: int = 1, share: int = 1
    ) -> None:
        firsts = np.cumsum([0, *shards])
        spans = [np.arange(a, b, block) for a, b in pairwise(firsts)]
        self.units = int(firsts[-1])
        self.firsts = np.concatenate([np.empty(0, np.int64), *spans])
        """[blocks] the first unit of each."""
        self.block = block
        ends = np.repeat(firsts[1:], [len(span) for span in spans])
        self._sizes = np.minimum(self.firsts + block, ends) - self.firsts
        self._span, self._lanes, self._share = window * block, lanes, share
        rounds, rest = divmod(self.units, lanes * share)
        left = np.clip(rest - share * np.arange(lanes), 0, share)
        self._lengths: list[int] = (rounds * share + left).tolist()
        self._starts: list[int] = np.cumsum([0, *self._lengths]).tolist()
        self._whole = lru_cache(2)(self._made_whole)
        self._line = lru_cache(2)(self._laid)
        self._units_of = lru_cache(2 * lanes)(self._mixed)

    def permuted(self, positions: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
        """The units at ``positions`` of the epoch's order; a bijection of ``range(units)``."""
        if self.units > AT_ONCE:
            return self._walked(positions, seed, epoch)
        return self._whole(seed, epoch)[positions]

    def _made_whole(self, seed: int, epoch: int) -> NDArray[np.int64]:
        return self._walked(np.arange(self.units), seed, epoch)

    def _walked(self, positions: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
        microbatches, within = np.divmod(positions, self._share)
        rounds, lanes = np.divmod(microbatches, self._lanes)
        places = rounds * self._share + within
        numbers = (places + self._offset(lanes)) // self._span
        new = (np.diff(lanes) != 0) | (np.diff(numbers) != 0)
        begins = np.concatenate([[0], np.flatnonzero(new) + 1])
        found = np.empty_like(positions)
        for first, last in zip(begins, [*begins[1:], len(positions)], strict=True):
            window = self._window(epoch, int(lanes[first]), int(numbers[first]))
            own = places[first:last] - window.first
            found[first:last] = self._units_of(window, seed)[own]
        return found

    def reads(
        self, place: int, count: int, lanes: Iterable[int], seed: int, epoch: int, epochs: int
    ) -> tuple[list[int], list[int]]:
        """The blocks that a rank reads next.

        Args:
            place: of its lanes, from where on it takes ``count`` units of each.
            lanes: its own.
            epochs: nothing is read ahead for a later one.

        Returns:
            Those of the windows that it is in; and of those that come next, the soonest first.
        """
        now, soon = list[Window](), list[tuple[int, Window]]()
        for lane in lanes:
            size = self._lengths[lane]
            if place >= size:
                continue
            offset = int(self._offset(lane))
            ends = [(at + offset) // self._span for at in (place, min(place + count, size) - 1)]
            now += [self._window(epoch, lane, n) for n in range(ends[0], ends[1] + 1)]
            last = now[-1].last
            if last < size:
                soon.append((last, self._window(epoch, lane, ends[1] + 1)))
            elif epoch + 1 < epochs:
                soon.append((last, self._window(epoch + 1, lane, 0)))
        following = [window for _, window in sorted(soon)]
        return self._blocks(now, seed), self._blocks(following, seed)

    def most_read(self, ranks: int, count: int, seed: int, epochs: int) -> int:
        """The most blocks that one of so many ranks reads at a time; see ``reads``.

        Args:
            count: units that a step takes of each lane.
        """
        groups = [range(rank, self._lanes, ranks) for rank in range(min(ranks, self._lanes))]
        found = (self._most(own, count, seed, epoch) for epoch in range(epochs) for own in groups)
        return min(max(found, default=0), len(self.firsts))

    def _most(self, lanes: range, count: int, seed: int, epoch: int) -> int:
        """In one epoch: where windows begin, for there the blocks of two of them are read."""
        begins = self._line(seed, epoch)[1]
        offsets = {lane: int(self._offset(lane)) for lane in lanes}
        edges = (np.arange(self._span - offsets[n], self._lengths[n], self._span) for n in lanes)
        places = np.unique(np.concatenate([[0], *edges]) // count) * count
        total = np.zeros(len(places), np.int64)
        for lane, offset in offsets.items():
            size, first = self._lengths[lane], places[places < self._lengths[lane]]
            last = np.minimum(first + count, size) - 1
            span = np.stack([(first + offset) // self._span, (last + offset) // self._span + 1])
            ends = np.clip(span * self._span - offset, 0, size) - np.array([[0], [1]])
            blocks = np.searchsorted(begins, ends + self._starts[lane], side="right")
            total[: len(first)] += blocks[1] - blocks[0] + 1
        return int(total.max())

    def _blocks(self, windows: Iterable[Window], seed: int) -> list[int]:
        found: dict[int, None] = {}
        for window in windows:
            blocks, begins = self._line(seed, window.epoch)
            ends = self._starts[window.lane] + np.array([window.first, window.last - 1])
            first, last = np.searchsorted(begins, ends, side="right") - 1
            found |= dict.fromkeys(blocks[first : last + 1].tolist())
        return list(found)

    def _offset(self, lane: NDArray[np.int64] | int) -> NDArray[np.int64] | int:
        """Lanes come to the ends of their windows at different steps: reading is spread evenly."""
        return self._span * lane // self._lanes

    def _window(self, epoch: int, lane: int, number: int) -> Window:
        first = self._span * number - int(self._offset(lane))
        last = min(first + self._span, self._lengths[lane])
        return Window(epoch, lane, number, max(0, first), last)

    def _mixed(self, window: Window, seed: int) -> NDArray[np.int64]:
        """[places of the window] the unit that comes there."""
        count = window.last - window.first
        own = mixed(key(mixed(key(seed, window.lane, _LANE)), window.number, _WINDOW))
        line = permuted(np.arange(count), count, own, window.epoch)
        line += self._starts[window.lane] + window.first
        blocks, begins = self._line(seed, window.epoch)
        places = np.searchsorted(begins, line, side="right") - 1
        return self.firsts[blocks[places]] + line - begins[places]

    def _laid(self, seed: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """[blocks] which comes at each place; and [blocks + 1] the position where it begins."""
        count = len(self.firsts)
        blocks = permuted(np.arange(count), count, mixed(key(seed, 0, _BLOCKS)), epoch)
        return blocks, np.cumsum(np.concatenate([[0], self._sizes[blocks]]))


def block_order(shards: Sequence[int], spec: TrainingSpec) -> BlockOrder:
    """The order that a training has of shards with so many units."""
    share = spec.batch_size // spec.microbatches
    return BlockOrder(shards, spec.block_rows, spec.block_window, spec.microbatches, share)
