"""The paired comparison: sure where the models differ, unsure where they do not."""

import numpy as np
import pytest

from ml_assets.assets.evaluation_report.champion_comparison import ChampionScores, Pair, compare
from ml_assets.assets.evaluation_report.metrics.metrics import point_metrics
from ml_assets.assets.evaluation_report.rows import Holdout, Truth
from ml_assets.assets.evaluation_report.seed_spread import spread_of


def rows(count=4000, seed=0):
    rng = np.random.default_rng(seed)
    score = 1 / (1 + np.exp(-rng.normal(size=count)))
    labels = (rng.random(count) < score).astype(int)
    return labels, score[:, None], np.arange(count) // 100


def test_the_value_is_the_difference_of_the_log_losses():
    labels, score, days = rows()
    worse = 0.5 + (score - 0.5) * 0.5
    found = Pair.of(Truth("binary", labels), score, worse, days, 500, 0).loss_difference()
    expected = (
        point_metrics(Truth("binary", labels), score)["log_loss"]
        - point_metrics(Truth("binary", labels), worse)["log_loss"]
    )
    assert found.value == pytest.approx(expected)
    assert found.high < 0, "the better candidate is shown to be better"
    back = Pair.of(Truth("binary", labels), worse, score, days, 500, 0).loss_difference()
    assert back.value == pytest.approx(-found.value)
    assert (back.low, back.high) == pytest.approx((-found.high, -found.low))


def test_a_model_against_itself_differs_by_nothing():
    labels, score, days = rows()
    found = Pair.of(Truth("binary", labels), score, score, days, 100, 0).loss_difference()
    assert (found.value, found.low, found.high) == (0, 0, 0)


def test_pairing_makes_a_small_difference_visible():
    """Each log-loss alone is uncertain by far more than the difference between them."""
    labels, score, days = rows()
    near = np.clip(score + np.random.default_rng(1).normal(size=score.shape) * 0.02, 0.01, 0.99)
    found = Pair.of(Truth("binary", labels), near, score, days, 500, 0).loss_difference()
    assert found.high - found.low < 0.005


def test_multiclass_is_compared_on_the_true_class():
    labels = np.array([0, 1, 2, 0])
    sure, flat = np.eye(3)[labels] * 0.7 + 0.1, np.full((4, 3), 1 / 3)
    found = Pair.of(
        Truth("multiclass", labels, ("a", "b", "c")), sure, flat, np.arange(4), 50, 0
    ).loss_difference()
    assert found.value == pytest.approx(np.log(1 / 3) - np.log(0.8))


def test_other_rows_are_misuse():
    labels, score, days = rows(100)
    with pytest.raises(ValueError, match="same rows"):
        Pair.of(Truth("binary", labels), score, score[:50], days, 10, 0).loss_difference()


def searches(seed=0, queries=400):
    rng = np.random.default_rng(seed)
    grades = rng.choice([0.0, 0.0, 1.0, 2.0], queries * 10)
    truth = Truth("ranking", grades, queries=np.repeat(np.arange(queries), 10))
    good = grades + rng.normal(0, 0.8, len(grades))
    worse = grades + rng.normal(0, 2.0, len(grades))
    return truth, good[:, None], worse[:, None]


def test_queries_are_compared_and_a_share_is_of_the_champions_metric():
    truth, good, worse = searches()
    pair = Pair.of(truth, good, worse, truth.queries, 300, 0)
    gap = pair.differences(["ndcg"])["ndcg"]
    own, rival = (point_metrics(truth, scores)["ndcg"] for scores in (good, worse))
    assert gap.absolute.value == pytest.approx(own - rival)
    assert gap.relative is not None
    assert gap.relative.value == pytest.approx(own / rival - 1)
    assert gap.relative.low > 0.05, "the better candidate is shown to be better"
    assert pair.loss_difference().value == pytest.approx(rival - own)


def test_a_difference_of_metrics_is_paired_as_that_of_losses_is():
    """NDCG is 1 less the loss: from the same draws, the two intervals mirror each other."""
    truth, good, worse = searches()
    pair = Pair.of(truth, good, worse, truth.queries, 300, 0)
    gap, loss = pair.differences(["ndcg"])["ndcg"].absolute, pair.loss_difference()
    assert (gap.low, gap.high) == pytest.approx((-loss.high, -loss.low))


def test_binary_log_loss_as_a_metric_is_the_loss():
    labels, score, days = rows()
    near = np.clip(score * 0.95, 0.01, 0.99)
    pair = Pair.of(Truth("binary", labels), near, score, days, 200, 0)
    gap, loss = pair.differences(["log_loss"])["log_loss"].absolute, pair.loss_difference()
    assert (gap.value, gap.low, gap.high) == pytest.approx((loss.value, loss.low, loss.high))


def test_the_spread_between_seeds_widens_every_interval_and_moves_no_value():
    labels, score, days = rows()
    near = np.clip(score * 0.97, 0.01, 0.99)
    pair = Pair.of(Truth("binary", labels), near, score, days, 300, 0)
    models = [np.clip(score + shift, 0.01, 0.99) for shift in (-0.03, 0.0, 0.05)]
    seen = spread_of(Truth("binary", labels), models, spec="5" * 64, data="d" * 64, seeds=(0, 1, 2))
    losses = [point_metrics(Truth("binary", labels), one)["log_loss"] for one in models]
    assert seen.loss == pytest.approx(np.std(losses, ddof=1))
    assert seen.metrics["log_loss"] == pytest.approx(seen.loss)
    plain, wide = pair.loss_difference(), pair.loss_difference(seeds=seen)
    assert wide.value == plain.value
    assert wide.high - wide.low > plain.high - plain.low
    assert wide.high - wide.value > 1.96 * np.sqrt(2) * seen.loss
    before = pair.differences(["brier"])["brier"]
    after = pair.differences(["brier"], seen)["brier"]
    assert after.relative.high - after.relative.low > before.relative.high - before.relative.low
    unknown = seen.model_copy(update={"metrics": {}})
    assert pair.differences(["brier"], unknown) == {}, "it is not taken for no spread"


def test_one_query_shows_nothing(spec):
    """An interval of no width would look like certainty."""
    truth = Truth("ranking", np.array([0.0, 1.0, 2.0]), queries=np.zeros(3, int))
    holdout = Holdout(truth, np.zeros(3, int), {}, ("", ""))
    scores = np.array([[1.0], [2.0], [3.0]])
    rival = ChampionScores("c4" * 32, -scores, "")
    assert compare(spec, holdout, scores, rival).loss_difference is None


def test_a_share_of_nothing_is_none_and_an_undefined_metric_is_left_out():
    truth = Truth("regression", np.array([1.0, 2.0, 3.0]))
    exact, off = truth.labels[:, None], truth.labels[:, None] + 1
    gap = Pair.of(truth, off, exact, np.arange(3), 50, 0).differences(["rmse"])["rmse"]
    assert (gap.absolute.value, gap.relative) == (1.0, None)
    flat = Truth("regression", np.ones(3))
    assert Pair.of(flat, off, exact, np.arange(3), 50, 0).differences(["r2"]) == {}
