"""Whatever the number of processes does, an epoch has each of its rows exactly once."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ml_assets.spec.training_program import Preprocessing
from ml_assets.store.block_order import BlockOrder
from ml_assets.store.row_encoding import Encoder
from ml_assets.store.row_order import permuted
from ml_assets.training.rows.arrays import ShardArrays, SplitArrays
from ml_assets.training.rows.batches import Batches
from ml_assets.training.rows.oversampling import OversampleIndex

EPOCHS = 2


class Shard(ShardArrays):
    """Rows in memory whose label is their place in the split."""

    def __init__(self, first: int, last: int) -> None:
        self.rows = last - first
        self.numeric = np.zeros((self.rows, 0))
        self.missing = np.zeros((self.rows, 0), np.uint8)
        self.categorical = np.zeros((self.rows, 0), np.int32)
        self.label = np.arange(first, last)
        self._codes = np.zeros((0, 1), np.int32)


class Numbered(SplitArrays):
    """Rows in memory, in shards of these lengths."""

    def __init__(self, shards: list[int], queries: list[int]) -> None:
        self._starts = np.cumsum([0, *shards])
        self._parts = [Shard(*span) for span in pairwise(self._starts.tolist())]
        self._encoder = Encoder(Preprocessing(numeric=(), null_flags=(), categorical=()))
        self.label_scale = None
        self._passed, self._kept = 0, None
        ends = np.cumsum([0, *queries])
        self._queries = np.stack([ends[:-1], ends[1:]], axis=1) if queries else None


@st.composite
def epochs(draw: st.DrawFn) -> Batches:
    """Any training set, rows or queries, in any order, with any batches, oversampled or not."""
    queries = draw(st.lists(st.integers(1, 6), max_size=40))
    shards = (
        [sum(queries)] if queries else draw(st.lists(st.integers(1, 90), min_size=1, max_size=4))
    )
    rows = Numbered(shards, queries)
    microbatches, share = draw(st.integers(1, 12)), draw(st.integers(1, 20))
    again = ()
    if not queries and draw(st.booleans()):
        rare = draw(st.sets(st.integers(0, len(rows) - 1), min_size=1, max_size=9))
        again = (OversampleIndex(1, np.array(sorted(rare)), draw(st.integers(1, 60))),)
    blocks = None
    if not again and draw(st.booleans()):
        block, window = draw(st.integers(1, 50)), draw(st.integers(1, 5))
        blocks = BlockOrder(rows.shards, block, window, microbatches, share)
    return Batches(
        rows,
        seed=draw(st.integers(0, 2**31)),
        batch_size=microbatches * share,
        microbatches=microbatches,
        accumulate=draw(st.integers(1, 3)),
        oversampled=again,
        blocks=blocks,
    )


def drawn(batches: Batches, step: int, world: int) -> Counter[int]:
    """The rows that count at a step, over all of its ranks and batches."""
    found: Counter[int] = Counter()
    for batch in range(batches.accumulate):
        for rank in range(world):
            rows, masks, counted = batches.share(step, rank, world, batch)
            assert len(rows.numeric) > 0, "a rank without rows would wait for the others for ever"
            assert counted in (0, sum(masks.rows))
            found.update(rows.label[:counted].tolist())
    return found


def expected(batches: Batches, epoch: int) -> Mapping[int, int]:
    """Each row of each unit once, and the rows of a rare class in turn, from where they were."""
    counts = Counter(batches.rows.whole().label.tolist())
    for more in batches.oversampled:
        first = epoch * (more.draws % len(more.rows))
        counts.update(int(more.rows[(first + n) % len(more.rows)]) for n in range(more.draws))
    return counts


@settings(max_examples=60)
@given(batches=epochs(), data=st.data())
def test_each_row_counts_once_an_epoch_however_the_number_of_processes_changes(
    batches: Batches, data: Any
) -> None:
    """Any worlds, changing before any steps: also more processes than there are microbatches."""
    steps = EPOCHS * batches.steps_per_epoch
    changes = data.draw(st.dictionaries(st.integers(1, steps), st.integers(1, 16), max_size=8))
    world = data.draw(st.integers(1, 16))
    for epoch in range(EPOCHS):
        seen: Counter[int] = Counter()
        for step in range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch):
            world = changes.get(step, world)
            taken = drawn(batches, step, world)
            assert taken == drawn(batches, step, 1), "a step is of the same rows in any world"
            seen += taken
        assert seen == expected(batches, epoch)


@settings(max_examples=100)
@given(
    shards=st.lists(st.integers(0, 200), min_size=1, max_size=4).filter(any),
    block=st.integers(1, 60),
    window=st.integers(1, 6),
    lanes=st.integers(1, 7),
    share=st.integers(1, 9),
    seed=st.integers(0, 2**63 - 1),
    world=st.integers(1, 4),
)
def test_an_order_of_blocks_has_each_row_once_and_a_rank_reads_what_is_told_before(
    shards: list[int], block: int, window: int, lanes: int, share: int, seed: int, world: int
) -> None:
    order = BlockOrder(shards, block, window, lanes, share)
    rows, size = sum(shards), lanes * share
    whole = order.permuted(np.arange(rows), seed, 0)
    assert sorted(whole.tolist()) == list(range(rows))
    for first in range(0, rows, size):
        batch = np.arange(first, min(first + size, rows))
        assert np.array_equal(order.permuted(batch, seed, 0), whole[batch]), "of the position alone"
        for rank in range(world):
            own = range(rank, lanes, world)
            now, _ = order.reads(first // lanes, share, own, seed, 0, epochs=1)
            mine = batch[np.isin(batch // share % lanes, own)]
            blocks = np.searchsorted(order.firsts, whole[mine], side="right") - 1
            assert set(blocks.tolist()) <= set(now)
    ends = np.searchsorted(order.firsts, np.cumsum([0, *shards]), side="left")
    for a, b in pairwise(ends.tolist()):
        assert np.all(np.diff(order.firsts[a:b]) == block), "no block lies in two shards"


@settings(max_examples=40)
@given(
    shards=st.lists(st.integers(1, 90), min_size=1, max_size=4),
    block=st.integers(1, 30),
    window=st.integers(1, 6),
    lanes=st.integers(1, 7),
    share=st.integers(1, 9),
    world=st.integers(1, 8),
)
def test_what_a_rank_reads_at_most_is_known_before_it_begins(
    shards: list[int], block: int, window: int, lanes: int, share: int, world: int
) -> None:
    """But for a block that two of its lanes share, which counts twice."""
    order = BlockOrder(shards, block, window, lanes, share)
    most, counted_twice = 0, 0
    for epoch in range(EPOCHS):
        for place in range(0, sum(shards), share):
            for rank in range(world):
                own = range(rank, lanes, world)
                asked = [[*own], *([lane] for lane in own)]
                joint, *each = (len(order.reads(place, share, n, 3, epoch, 1)[0]) for n in asked)
                most, counted_twice = max(most, joint), max(counted_twice, sum(each))
    found = order.most_read(world, share, seed=3, epochs=EPOCHS)
    assert most <= found == min(counted_twice, len(order.firsts))


def test_ranks_share_the_blocks_between_them_and_read_each_once_an_epoch() -> None:
    """But for the few where one window ends and the next begins."""
    order = BlockOrder([4000, 4000], 50, 4, lanes=8, share=10)
    for world in (1, 2, 4):
        seen = Counter[int]()
        for rank in range(world):
            held = set[int]()
            for step in range(100):
                now, _ = order.reads(step * 10, 10, range(rank, 8, world), 5, 0, epochs=1)
                seen.update(set(now) - held)
                held = set(now)
        assert set(seen) == set(range(160))
        assert sum(seen.values()) < 1.5 * 160


def test_an_order_of_blocks_is_another_in_each_epoch_and_for_each_seed() -> None:
    order, places = BlockOrder([1000], 10, 4, 3, 5), np.arange(1000)
    found = [order.permuted(places, seed, epoch).tolist() for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(one) for one in found}) == 4


def test_a_window_of_all_blocks_mixes_as_well_as_an_order_of_rows() -> None:
    """Neighbours in the order are, on average, as far apart in the set."""
    places = np.arange(20_000)
    blocks = BlockOrder([20_000], 16, 1250).permuted(places, 3, 1)
    rows = permuted(places, 20_000, 3, 1)
    apart, freely = (np.abs(np.diff(found)).mean() for found in (blocks, rows))
    assert abs(apart / freely - 1) < 0.02
