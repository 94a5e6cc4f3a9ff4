"""Importance: what the model needs is found, what it does not need is not, and it repeats."""

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.evaluation_report.importance import STACKED_ROWS, importance, shuffle
from ml_assets.assets.evaluation_report.rows import Holdout, Truth
from ml_assets.spec.pipeline import LabelSpec


@pytest.fixture
def rows():
    draw = np.random.default_rng(3)
    distance = draw.normal(size=4000)
    late = draw.random(4000) < 1 / (1 + np.exp(-3 * distance))
    return pl.DataFrame({"distance": distance, "carrier": ["AA", "UA"] * 2000, "late": late})


def holdout_of(rows):
    return Holdout(
        truth=Truth("binary", rows["late"].cast(pl.Int64).to_numpy()),
        blocks=np.arange(len(rows)) // 50,
        slices={},
        span=("", ""),
    )


def scores(frame):
    """A model that knows the distance and does not look at the carrier."""
    return 1 / (1 + np.exp(-3 * frame["distance"].to_numpy()[:, None]))


def test_a_needed_feature_matters_and_an_unused_one_does_not(spec, rows):
    shuffled = shuffle(spec, rows)
    found = importance(spec, holdout_of(rows), shuffled, scores(shuffled.stacked))
    by_column = {one.column: one.loss_rise for one in found}
    assert list(by_column) == ["distance", "carrier"]
    assert by_column["distance"].low > 0.1
    assert by_column["carrier"].value == 0.0


def test_each_copy_differs_from_the_sample_in_one_column_only(spec, rows):
    shuffled = shuffle(spec, rows)
    size = len(shuffled.sampled)
    sample, *copies = (shuffled.stacked[i * size : (i + 1) * size] for i in range(3))
    assert sample.equals(rows[shuffled.sampled].select(sample.columns))
    for column, copy in zip(shuffled.columns, copies, strict=True):
        others = [name for name in sample.columns if name != column]
        assert copy.select(others).equals(sample.select(others))
        assert not copy[column].equals(sample[column])
        assert sorted(copy[column].to_list()) == sorted(sample[column].to_list())


def test_equal_rows_are_an_equal_stack_of_bounded_size(spec, rows):
    assert shuffle(spec, rows).stacked.equals(shuffle(spec, rows).stacked)
    many = tuple(f"f{n}" for n in range(300))
    wide = spec.model_copy(
        update={"features": spec.features.model_copy(update={"numeric": many, "categorical": ()})}
    )
    frame = rows.with_columns(*(pl.col("distance").alias(name) for name in many))
    assert len(shuffle(wide, frame).stacked) <= STACKED_ROWS


def test_a_ranking_is_sampled_by_whole_queries_that_can_be_judged(spec, rows):
    label = LabelSpec(column="late", task="ranking", query="search")
    asked = rows.with_columns(
        search=pl.Series([f"q{n // 8}" for n in range(4000)]),
        late=pl.when(pl.int_range(4000) < 80).then(0).otherwise(pl.col("late").cast(pl.Int64)),
    )
    shuffled = shuffle(spec.model_copy(update={"label": label}), asked)
    chosen = asked[shuffled.sampled]
    assert 900 < len(chosen) <= 1000
    assert set(chosen.group_by("search").len()["len"]) == {8}
    assert chosen.group_by("search").agg(pl.col("late").max())["late"].min() == 1
    queries = (asked["search"].rank("dense").cast(pl.Int64) - 1).to_numpy()
    truth = Truth("ranking", asked["late"].to_numpy(), queries=queries)
    holdout = Holdout(truth=truth, blocks=queries, slices={}, span=("", ""))
    found = importance(
        spec.model_copy(update={"label": label}), holdout, shuffled, scores(shuffled.stacked)
    )
    assert found[0].loss_rise.low > 0.05 and found[1].loss_rise.value == 0.0
