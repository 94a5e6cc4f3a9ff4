"""Rows that are fetched have room in ``data_cache``, on the fewest nodes too, or nothing starts."""

from typing import Any

import pytest

from ml_assets.errors import DoesNotFit
from ml_assets.launch.row_cache_size import require_cached
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.training import TrainingSpec
from ml_assets.spec.training_program import (
    CategoricalColumn,
    NumericColumn,
    Preprocessing,
    Shard,
    ShardSchema,
    World,
)
from ml_assets.store.block_order import block_order

ROW = 4 * (2 + 1) + 4 + 4
"""Bytes of an encoded row: two numbers and a flag, a word, and the label."""
SPEC = TrainingSpec(
    epochs=2,
    batch_size=240,
    microbatches=8,
    processes=4,
    order="blocks",
    block_rows=512,
    block_window=2,
)
BLOCK = SPEC.block_rows * ROW
SET = ShardSchema(
    task="binary",
    classes=(),
    preprocessing=Preprocessing(
        numeric=tuple(NumericColumn(name=name, mean=0.0, std=1.0) for name in "xz"),
        null_flags=("z",),
        categorical=(CategoricalColumn(name="c", vocabulary=("a", "b")),),
    ),
    label_rate=(0.5,),
    splits={"train": (Shard(rows=90_000, digest="0" * 64, table="1" * 64),)},
)
TWO_NODES = World(nodes=2, procs=2)


def required(blocks: int, spec: TrainingSpec = SPEC, **cluster: Any) -> None:
    """With room for so many blocks in each of the two processes of a pod."""
    nodes = ClusterSpec(nodes=2, data_cache=str(2 * blocks * BLOCK), **cluster)
    require_cached(SET, spec, TWO_NODES, nodes, 2 * blocks * BLOCK)


def most_read(processes: int) -> int:
    """As the program reads: from the first step to the last, of every process."""
    order, share = block_order([90_000], SPEC), SPEC.batch_size // SPEC.microbatches
    return max(
        len(order.reads(place, share, range(rank, 8, processes), SPEC.seed, epoch, 2)[0])
        for epoch in range(SPEC.epochs)
        for place in range(0, 90_000 // 8, share)
        for rank in range(processes)
    )


def test_a_cache_for_all_nodes_but_not_for_the_fewest_is_refused_before_one_is_lost() -> None:
    on_two, on_one = most_read(4), most_read(2)
    assert 2 * 3 <= on_two < 4 * 3 <= on_one, "a lane reads a window, and a part of a block more"
    required(on_two)
    with pytest.raises(DoesNotFit) as told:
        required(on_two, min_nodes=1)
    said = str(told.value)
    assert "On 1 node, the fewest that cluster.min_nodes allows, a process reads" in said
    assert f"reads {on_one} blocks of 512 rows" in said and f"has room for {on_two};" in said
    assert "training.block_window" in said and "cluster.min_nodes, or raise cluster.nodes" in said
    least = int(said.partition("data_cache to ")[2].partition("Mi")[0])
    assert least == -(-2 * on_one * BLOCK // 2**20)
    required(on_one, min_nodes=1)
    with pytest.raises(DoesNotFit):
        required(on_one - 1, min_nodes=1)


def test_a_cache_that_is_too_small_for_all_nodes_names_more_of_them() -> None:
    with pytest.raises(DoesNotFit, match=r"On 2 nodes, a .*raise cluster\.nodes and training\.p"):
        required(most_read(4) - 1)


def test_only_epochs_that_are_reached_are_counted() -> None:
    """Steps of 240 rows: 375 are the first epoch."""
    short = SPEC.model_copy(update={"epochs": 10**9, "max_steps": 700})
    required(most_read(4), short)
