"""The interval of a difference: right where few blocks, skewed ones and a second chance are."""

import numpy as np
import pytest
from scipy.stats import t, ttest_1samp

from ml_assets.assets.evaluation_report.bootstrap import Resampler, Variance, student


def mean_interval(values, **more):
    """Of the mean of values, each a block of its own."""
    resampler = Resampler(np.arange(len(values)), 4000, 0)
    draws = resampler.totals(values[:, None])[:, 0] / len(values)
    return student(values.mean(), draws, len(values), **more)


def symmetric(count, seed=0):
    half = np.random.default_rng(seed).normal(size=count // 2)
    return np.concatenate([half, -half]) + 1.0


@pytest.mark.parametrize("count", [6, 20, 200])
def test_of_a_mean_without_skew_it_is_the_textbooks(count):
    values = symmetric(count)
    found, known = mean_interval(values), ttest_1samp(values, 0).confidence_interval(0.95)
    width = known.high - known.low
    assert found.high - found.low == pytest.approx(width, rel=0.12)
    assert found.high - found.low >= 0.95 * width


def test_it_is_longer_on_the_side_of_rare_large_values_and_no_shorter_on_the_other():
    values = np.random.default_rng(1).exponential(size=30)
    found = mean_interval(values)
    known = ttest_1samp(values, 0).confidence_interval(0.95)
    assert found.high > known.high + 0.2 * (known.high - known.low) / 2
    assert found.low == pytest.approx(known.low, abs=0.05)
    back = mean_interval(-values)
    assert (back.low, back.high) == pytest.approx((-found.high, -found.low))


def test_more_claims_and_a_second_source_of_chance_make_it_wider():
    values = symmetric(40)
    plain, many = mean_interval(values), mean_interval(values, claims=10)
    error = (plain.high - plain.value) / t.ppf(0.975, 39)
    assert many.high - many.value == pytest.approx(error * t.ppf(0.9975, 39), rel=0.05)
    both = mean_interval(values, also=Variance(100 * error**2, 2))
    freedom = 101**2 / (1 / 39 + 100**2 / 2)
    assert both.high - both.value == pytest.approx(
        error * np.sqrt(101) * t.ppf(0.975, freedom), rel=0.05
    )


def test_no_spread_is_no_width():
    assert mean_interval(np.ones(5)) == student(1.0, np.ones(4000), 5)
    assert mean_interval(np.ones(5)).high == 1.0


def test_a_part_shares_the_draws_of_the_whole():
    blocks = np.repeat(np.arange(10), 4)
    whole = Resampler(blocks, 50, 3)
    rows = np.random.default_rng(0).random(40) < 0.5
    part = whole.sharing(blocks[rows])
    values = np.arange(40.0)
    expected = whole.totals((values * rows)[:, None])
    assert np.allclose(part.totals(values[rows][:, None]), expected)
    with pytest.raises(ValueError, match="single block"):
        Resampler(np.zeros(5), 10, 0).sharing(np.zeros(2))
