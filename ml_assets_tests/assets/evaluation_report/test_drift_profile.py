"""Histograms: what is counted where, that counts add up, and what a new word is."""

import math
import tracemalloc

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.drift_report.distances import distances
from ml_assets.assets.evaluation_report.drift_baseline import FramesOnDemand
from ml_assets.assets.evaluation_report.drift_profile import (
    KNOWN,
    BinColumns,
    CategoryBins,
    NumericBins,
    count,
    labels,
    make_profile,
    merge,
)


def test_counting_two_halves_and_adding_them_is_counting_the_whole() -> None:
    draw = np.random.default_rng(0)
    whole = pl.DataFrame(
        {"x": draw.normal(size=1000), "w": draw.choice([f"w{n}" for n in range(50)], 1000)}
    )
    bins = make_profile({None: whole}, ["x"], ["w"]).bins
    halves = [count(whole[:300], bins, "a"), count(whole[300:], bins, "b")]
    assert merge(halves, None) == count(whole, bins, None)
    assert all(sum(column) == 1000 for column in merge(halves, None).counts)


def test_every_row_is_in_a_bin_nan_and_infinities_too() -> None:
    bins = make_profile({None: pl.DataFrame({"x": [1.0, 2.0, 3.0, 4.0]})}, ["x"], []).bins
    odd = [None, math.nan, math.inf, -math.inf, 0.0, 9.0, 1.0, 4.0]
    (counts,) = count(pl.DataFrame({"x": odd}, strict=False), bins, None).counts
    assert sum(counts) == len(odd)
    assert counts[-1] == 2, "null and NaN"
    assert counts[0] == 2, "below the least"
    assert counts[-2] == 2, "above the most"
    assert len(labels(bins[0])) == len(counts)


def test_a_value_that_most_rows_have_is_a_bin_of_its_own() -> None:
    column = pl.Series("x", [0.0] * 95 + [float(n) for n in range(1, 6)])
    (bins,) = make_profile({None: column.to_frame()}, ["x"], []).bins
    assert isinstance(bins, NumericBins)
    (counts,) = count(column.to_frame(), (bins,), None).counts
    assert counts[1] == 95


@pytest.mark.parametrize("values", [[None, None], [5.0, 5.0]])
def test_an_empty_or_constant_column_still_has_bins(values: list[float | None]) -> None:
    frame = pl.DataFrame({"x": pl.Series(values, dtype=pl.Float64)})
    bins = make_profile({None: frame}, ["x"], []).bins
    (counts,) = count(frame, bins, None).counts
    assert sum(counts) == 2
    other = count(pl.DataFrame({"x": [4.0, 6.0]}), bins, None)
    assert sum(other.counts[0]) == 2
    assert other.counts[0][-1] == 0


def test_a_word_is_frequent_rare_new_or_null() -> None:
    words = ["a"] * 50 + [f"w{n}" for n in range(40)]
    bins = make_profile({None: pl.DataFrame({"w": words})}, [], ["w"]).bins
    new = count(pl.DataFrame({"w": ["a", "a", "never", None, words[-1]]}), bins, None)
    columns = BinColumns(bins)
    row = columns.matrix(new)[0]
    assert row[0] == 2
    assert row[columns.new[0]] == 1
    assert row[columns.null[0]] == 1
    assert isinstance(bins[0], CategoryBins)
    assert bins[0].once == 40


def test_of_a_column_with_too_many_words_none_is_called_new() -> None:
    many = pl.DataFrame({"w": [str(n) for n in range(KNOWN + 1)]})
    bins = make_profile({None: many}, [], ["w"]).bins
    columns = BinColumns(bins)
    assert columns.new[0] == -1
    assert sum(count(pl.DataFrame({"w": ["never"]}), bins, None).counts[0]) == 1


def test_a_word_that_only_one_period_has_is_counted_there() -> None:
    frames: dict[str | None, pl.DataFrame] = {
        "a": pl.DataFrame({"w": ["x", "x", "summer"]}),
        "b": pl.DataFrame({"w": ["x", "y"]}),
        "c": pl.DataFrame({"w": ["x", "y"]}),
    }
    profile = make_profile(frames, [], ["w"])
    assert [period.alone for period in profile.periods] == [(1,), (0,), (0,)]


def test_the_distances_are_those_of_the_textbook() -> None:
    """PSI by its sum; JS by scipy; KS by the gap of the cumulated shares."""
    from scipy.spatial.distance import jensenshannon

    new, old = np.array([[400, 300, 200, 100, 0]]), np.array([[250, 250, 250, 250, 0]])
    real, ordered = np.ones((1, 5), dtype=bool), np.array([True])
    found = distances(new, old, real, ordered)
    p = (new[0] + 0.5) / (new[0] + 0.5).sum()
    q = (old[0] + 0.5) / (old[0] + 0.5).sum()
    assert found.psi[0] == pytest.approx(((p - q) * np.log(p / q)).sum())
    assert found.js[0] == pytest.approx(jensenshannon(p, q, base=2))
    assert found.ks[0] == pytest.approx(0.2)


def test_of_many_periods_only_the_sample_is_held() -> None:
    rows, periods, columns = 5_000, 60, ["x", "y"]

    def read(key: str | None) -> pl.LazyFrame:
        draw = np.random.default_rng(int(key or 0))
        return pl.LazyFrame({name: draw.normal(size=rows) for name in columns})

    frames = FramesOnDemand([str(n) for n in range(periods)], read)
    tracemalloc.start()
    try:
        found = make_profile(frames, columns, [])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(one.rows for one in found.periods) == rows * periods
    sample = 8 * len(columns) * rows * periods / 2  # of more than 200,000 rows, each second one
    assert peak < 2 * sample, peak / sample


def test_rows_are_read_again_rather_than_held() -> None:
    frames = FramesOnDemand(["a"], lambda _: pl.LazyFrame({"x": [1.0]}))
    assert frames["a"] is not frames["a"]
