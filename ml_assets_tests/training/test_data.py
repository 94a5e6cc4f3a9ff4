"""Batches of a ranking: whole queries, each with something to learn from, once an epoch."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training_program import Ref
from ml_assets.store.row_encoding import Encoder
from ml_assets.training.rows import arrays as arrays_module
from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets.training.rows.batches import Batches
from ml_assets.training.stop import BadData
from ml_assets_tests.training.conftest import FEATURES, frame
from ml_assets_tests.worlds.shards import shard_of, write_shards

GRADE = LabelSpec(column="y", task="ranking", query="q")
QUERIES = 57


def searches(queries: int = QUERIES, grade: int = 1) -> pl.LazyFrame:
    """Query number n has n % 5 + 1 rows; of every seventh none is relevant."""
    of = np.repeat(np.arange(queries), np.arange(queries) % 5 + 1)
    shown = pl.Series("y", grade * ((of % 7 > 0) * (np.arange(len(of)) % 2 + 1)))
    return frame(len(of), 0).with_columns(pl.Series("q", of), shown)


def write(folder: Path, rows: pl.LazyFrame) -> Ref:
    splits = {"train": rows, "validation": rows, "holdout": rows}
    return write_shards(splits, FEATURES, GRADE, folder)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def arrays(tmp_path: Path) -> SplitArrays:
    folder, schema = open_set(write(tmp_path, searches()))
    return SplitArrays(folder, schema, "train")


def test_a_query_without_a_relevant_row_is_no_unit(arrays: SplitArrays) -> None:
    teaching = [number for number in range(QUERIES) if number % 7]
    assert arrays.units == len(teaching)
    found = arrays.rows_of(np.arange(arrays.units)).tolist()
    assert found == [number % 5 + 1 for number in teaching]
    assert len(arrays) == sum(number % 5 + 1 for number in range(QUERIES))


def test_units_are_taken_whole_and_in_the_order_asked_for(arrays: SplitArrays) -> None:
    taken = arrays.take_units(np.array([3, 0, 9]))
    lengths = arrays.rows_of(np.array([3, 0, 9]))
    assert taken.starts is not None
    assert np.diff(taken.starts).tolist() == lengths.tolist()
    parts = [arrays.take_units(np.array([unit])).label.tolist() for unit in (3, 0, 9)]
    assert taken.label.tolist() == [share for part in parts for share in part]
    assert all(sum(part) == pytest.approx(1) for part in parts), "the shares of one whole query"


@pytest.mark.parametrize("world", [1, 2, 5])
def test_any_number_of_ranks_sees_every_query_of_an_epoch_once(
    arrays: SplitArrays, world: int
) -> None:
    batches = Batches(arrays, seed=1, batch_size=12, microbatches=6)
    gains = seen = 0.0
    values: list[float] = []
    for step in range(batches.steps_per_epoch):
        for rank in range(world):
            rows, masks, counted = batches.share(step, rank, world)
            assert counted in (0, sum(masks.rows))
            assert sum(masks.rows) == len(rows.label)
            if counted:
                assert rows.starts is not None
                seen += len(rows.starts) - 1
                gains += float(rows.label.sum())
                values += rows.numeric[:, 0].tolist()
    assert seen == arrays.units
    assert gains == pytest.approx(arrays.units)
    everything = arrays.take_units(np.arange(arrays.units)).numeric[:, 0].tolist()
    assert sorted(values) == sorted(everything)


def test_a_set_where_nothing_is_relevant_is_refused(tmp_path: Path) -> None:
    folder, schema = open_set(write(tmp_path, searches(grade=0)))
    with pytest.raises(BadData, match=r"No query of .* has a relevant row"):
        SplitArrays(folder, schema, "train")


def test_damaged_queries_are_found(tmp_path: Path) -> None:
    ref = write(tmp_path, searches())
    (shard_of(ref, "train") / "queries.npy").write_bytes(b"nothing")
    with pytest.raises(BadData, match=r"queries.npy is damaged"):
        open_set(ref)


@pytest.mark.parametrize("most", [64 << 20, 0])
def test_rows_that_are_read_again_have_the_same_bits_kept_or_not(
    arrays: SplitArrays, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(arrays_module, "_KEPT", most)
    rows = np.random.default_rng(0).permutation(len(arrays))
    first = arrays.take(rows)
    read = list[int]()
    encode = Encoder.numeric

    def counted(self: Encoder, values: NDArray[Any], missing: NDArray[Any]) -> NDArray[Any]:
        read.append(len(values))
        return encode(self, values, missing)

    for _ in range(2):
        again = arrays.take(rows)
        for name in ("numeric", "categorical", "label"):
            assert getattr(again, name).tobytes() == getattr(first, name).tobytes()
        monkeypatch.setattr(Encoder, "numeric", counted)
    assert bool(read) == (most == 0), "what is kept is not encoded again"
