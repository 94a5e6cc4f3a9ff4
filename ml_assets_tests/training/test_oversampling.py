"""What an epoch draws where rare classes are oversampled: how often, and the same in any world."""

import tracemalloc
from collections import Counter
from functools import reduce
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training_program import Ref
from ml_assets.spec.training_program.events import DrawnRows
from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets.training.rows.batches import Batches
from ml_assets.training.rows.oversampling import (
    OversampleIndex,
    count_rows,
    drawn_rows,
    oversample_index,
    rows_of_epoch,
)
from ml_assets.training.stop import BadData
from ml_assets_tests.training.conftest import FEATURES, LABEL, frame
from ml_assets_tests.worlds.shards import write_shards

SHARE = 0.2
ROWS = 1000


def rare_set(folder: Path, positives: int) -> Ref:
    """One row in a few is positive; ``x`` names the row."""
    rows = frame(ROWS, 0).with_columns(
        (pl.col("k") % (ROWS // positives) == 0).alias("y")
        if positives
        else pl.lit(False).alias("y"),
        pl.col("k").cast(pl.Float64).alias("x"),
    )
    splits = {"train": rows, "validation": frame(50, 2000), "holdout": frame(50, 3000)}
    return write_shards(splits, FEATURES, LABEL, folder)  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def rare(tmp_path_factory: pytest.TempPathFactory) -> Batches:
    folder, schema = open_set(rare_set(tmp_path_factory.mktemp("rare"), 10))
    rows = SplitArrays(folder, schema, "train")
    return Batches(rows, 3, 96, 12, oversampled=oversample_index(rows, schema, SHARE))


def steps_of(batches: Batches, epoch: int) -> range:
    each = batches.steps_per_epoch
    return range(epoch * each, (epoch + 1) * each)


def drawn(batches: Batches, epoch: int, world: int = 1, first: int = 0) -> list[tuple[float, int]]:
    """(row, label) of every draw of an epoch, by all ranks, from a step on."""
    found: list[tuple[float, int]] = []
    for step in steps_of(batches, epoch)[first:]:
        for rank in range(world):
            rows, _, counted = batches.share(step, rank, world)
            pairs = zip(rows.numeric[:counted, 0].tolist(), rows.label.tolist(), strict=False)
            found += [(row, int(label)) for row, label in pairs]
    return found


def test_positives_make_the_share_and_every_negative_comes_once(rare: Batches) -> None:
    """990 negatives are 80 % of 1238 draws: 248 positive draws of 10 rows, 24 or 25 of each."""
    counts = Counter(drawn(rare, epoch=0))
    assert sum(counts.values()) == rare.draws == 1238
    negatives = [n for (_, label), n in counts.items() if not label]
    positives = [n for (_, label), n in counts.items() if label]
    assert negatives == [1] * 990
    assert sorted(positives) == [24] * 2 + [25] * 8
    assert sum(positives) / rare.draws == pytest.approx(SHARE, abs=1e-3)


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_what_an_epoch_is_to_draw_is_what_its_steps_draw(rare: Batches, epoch: int) -> None:
    taken = [rare.share(step, 0, 1)[0].numbers for step in steps_of(rare, epoch)]
    assert count_rows(np.concatenate(taken)) == rare.rows_of_epoch(epoch)


@pytest.mark.parametrize("epoch", [0, 1, 7])
@pytest.mark.parametrize("draws", [0, 1, 2, 3, 4, 98])
def test_further_draws_are_counted_as_they_are_drawn(draws: int, epoch: int) -> None:
    again = (OversampleIndex(1, np.array([7, 8, 9]), draws), OversampleIndex(2, np.array([5]), 2))
    places = np.arange(10 + draws + 2)
    drawn = count_rows(drawn_rows(places, 10, again, epoch))
    assert rows_of_epoch(10, again, epoch) == drawn


def test_an_epoch_is_counted_in_the_memory_of_the_rare_rows() -> None:
    again = (OversampleIndex(1, np.arange(40), 10_000_000),)
    tracemalloc.start()
    try:
        rows_of_epoch(1000, again, 3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize("rows", [0, 1, 2, 1000, 3_000_017])
def test_three_sums_of_all_rows_each_once_are_known_without_them(rows: int) -> None:
    assert count_rows(np.random.default_rng(1).permutation(rows)) == DrawnRows.all_of(rows)


def test_sums_of_parts_add_up_whatever_their_size() -> None:
    parts = np.array_split(np.arange(3 << 40, (3 << 40) + 999), 7)
    whole = reduce(DrawnRows.plus, map(count_rows, parts))
    assert whole == count_rows(np.concatenate(parts))
    assert max(whole.sums) < 2**40


@pytest.mark.parametrize("changed", [[7, 3], [3, 3], []], ids=["order", "twice", "left out"])
def test_a_row_that_comes_twice_or_never_changes_a_sum(changed: list[int]) -> None:
    rest = [row for row in range(10) if row not in (3, 7)]
    same = count_rows(np.array(rest + changed)) == DrawnRows.all_of(10)
    assert same == (sorted(changed) == [3, 7])


@pytest.mark.parametrize("world", [2, 3, 5, 24])
def test_any_world_draws_the_same(rare: Batches, world: int) -> None:
    assert Counter(drawn(rare, 0, world)) == Counter(drawn(rare, 0))


def test_a_step_is_the_same_wherever_training_goes_on_from(rare: Batches) -> None:
    whole, rest = drawn(rare, 1), drawn(rare, 1, first=5)
    assert whole[5 * 96 :] == rest


def test_who_comes_once_more_goes_round_from_epoch_to_epoch(rare: Batches) -> None:
    positives = Counter(p for epoch in range(5) for p in drawn(rare, epoch) if p[1])
    assert set(positives.values()) == {5 * 248 // 10}


def test_further_draws_of_a_class_are_its_rows_in_turn() -> None:
    again = (OversampleIndex(1, np.array([7, 8, 9]), 4), OversampleIndex(2, np.array([5]), 2))
    draws = np.arange(10, 16)
    assert drawn_rows(draws, 10, again, epoch=0).tolist() == [7, 8, 9, 7, 5, 5]
    assert drawn_rows(draws, 10, again, epoch=1).tolist() == [8, 9, 7, 8, 5, 5]


def test_every_class_gets_its_share(tmp_path: Path) -> None:
    kind = pl.when(pl.col("k") % 100 == 0).then(pl.lit("c")).when(pl.col("k") % 20 == 1)
    rows = frame(ROWS, 0).with_columns(kind.then(pl.lit("b")).otherwise(pl.lit("a")).alias("y"))
    label = LabelSpec(column="y", task="multiclass", classes=("a", "b", "c"))
    splits = {"train": rows, "validation": rows, "holdout": rows}
    folder, schema = open_set(write_shards(splits, FEATURES, label, tmp_path))  # pyright: ignore[reportArgumentType]
    arrays = SplitArrays(folder, schema, "train")
    found = {more.label: more for more in oversample_index(arrays, schema, 0.25)}
    assert found.keys() == {1, 2}
    whole = ROWS + sum(more.draws for more in found.values())
    for more in found.values():
        assert (len(more.rows) + more.draws) / whole == pytest.approx(0.25, abs=1e-3)
    assert oversample_index(arrays, schema, 0.01) == (), "every class has that much by itself"


def test_a_class_without_a_row_cannot_be_drawn(tmp_path: Path) -> None:
    folder, schema = open_set(rare_set(tmp_path, 0))
    with pytest.raises(BadData, match=r"no row of the class \['true'\]"):
        oversample_index(SplitArrays(folder, schema, "train"), schema, SHARE)
