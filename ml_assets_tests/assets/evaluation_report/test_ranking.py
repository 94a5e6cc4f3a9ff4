"""NDCG is scikit-learn's on transformed grades; ties favour nobody; empty queries are counted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from ml_assets.assets.evaluation_report.metrics.metrics import evaluate, judged, point_metrics
from ml_assets.assets.evaluation_report.metrics.ranking import ranking
from ml_assets.assets.evaluation_report.rows import Truth
from ml_assets.errors import EvidenceError


def searches(queries=200, products=10, seed=0, decimals=None):
    """[queries, products] grades and scores; a query of zeros only is possible."""
    rng = np.random.default_rng(seed)
    grades = rng.choice([0.0, 0.0, 0.0, 1.0, 2.0, 3.0], (queries, products))
    scores = grades + rng.normal(0, 1.5, grades.shape)
    return grades, scores if decimals is None else scores.round(decimals)


def truth_of(grades, at=10):
    queries = np.repeat(np.arange(len(grades)), grades.shape[1])
    return Truth("ranking", grades.ravel(), queries=queries, ndcg_at=at)


def by_scikit_learn(grades, scores, at):
    relevant = grades.max(axis=1) > 0
    return ndcg_score(2 ** grades[relevant] - 1, scores[relevant], k=at)


@pytest.mark.parametrize("at", [1, 3, 10, 50])
@pytest.mark.parametrize("decimals", [None, 0], ids=["all scores differ", "many ties"])
def test_ndcg_is_that_of_scikit_learn_with_exponential_gains(at, decimals):
    grades, scores = searches(decimals=decimals)
    found = point_metrics(truth_of(grades, at), scores.ravel())
    assert set(found) == {"ndcg"}
    assert found["ndcg"] == pytest.approx(by_scikit_learn(grades, scores, at), abs=1e-12)


def test_a_known_answer():
    truth = Truth("ranking", np.array([3.0, 0.0, 1.0]), queries=np.zeros(3, int), ndcg_at=2)
    found = point_metrics(truth, np.array([0.2, 0.9, 0.1]))["ndcg"]
    assert found == pytest.approx((7 / np.log2(3)) / (7 + 1 / np.log2(3)))


def test_the_order_of_the_rows_says_nothing():
    grades, scores = searches(decimals=0)
    truth, scores = truth_of(grades), scores.ravel()
    shuffled = np.random.default_rng(1).permutation(len(scores))
    again = point_metrics(truth.of(shuffled), scores[shuffled])
    assert again["ndcg"] == pytest.approx(point_metrics(truth, scores)["ndcg"], abs=1e-12)


def test_a_constant_score_gains_nothing_from_a_sorted_file():
    grades, _ = searches()
    flat = np.zeros(grades.size)
    sorted_file = truth_of(-np.sort(-grades, axis=1))
    chance = np.mean([ndcg_of_a_random_order(grades, seed) for seed in range(200)])
    assert point_metrics(sorted_file, flat)["ndcg"] == pytest.approx(chance, abs=0.01)


def ndcg_of_a_random_order(grades, seed):
    scores = np.random.default_rng(seed).random(grades.size)
    return point_metrics(truth_of(grades), scores)["ndcg"]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=2, max_size=30))
def test_ndcg_is_that_of_scikit_learn_for_any_ties(rows):
    grades, scores = (np.array([values], dtype=float) for values in zip(*rows, strict=True))
    found = point_metrics(truth_of(grades, at=5), scores.ravel())
    if not grades.any():
        assert found == {}
        return
    assert found["ndcg"] == pytest.approx(by_scikit_learn(grades, scores, 5), abs=1e-12)
    assert 0 <= found["ndcg"] <= 1 + 1e-12


def test_a_query_without_a_relevant_row_is_left_out_and_counted():
    grades, scores = searches(queries=50)
    grades[:7] = 0
    grades[7:] = np.maximum(grades[7:], np.eye(10)[0])
    seen = ranking(truth_of(grades), scores.ravel(), None)
    assert (seen.queries, seen.without_relevant) == (43, 7)
    judged_only = point_metrics(truth_of(grades[7:]), scores[7:].ravel())
    assert point_metrics(truth_of(grades), scores.ravel()) == judged_only


def test_a_holdout_without_any_relevant_row_is_refused():
    truth = truth_of(np.zeros((5, 3)))
    with pytest.raises(EvidenceError, match="no query has a relevant row"):
        evaluate(truth, np.random.default_rng(0).random(15), np.arange(15), 10, 0)


def test_the_interval_covers_the_mean_of_other_draws():
    inside = 0
    expected = point_metrics(*pair(queries=20_000, seed=999))["ndcg"]
    for seed in range(40):
        truth, scores = pair(queries=150, seed=seed)
        found = evaluate(truth, scores, truth.queries, 300, seed)["ndcg"]
        inside += found.low <= expected <= found.high
    assert inside >= 34


def pair(queries, seed):
    grades, scores = searches(queries=queries, seed=seed)
    return truth_of(grades), scores.ravel()


def test_days_of_like_queries_widen_the_interval():
    rng = np.random.default_rng(0)
    grades, _ = searches(queries=300)
    day = np.repeat(np.arange(300) // 30, 10)
    noise = np.where(day % 2, 0.1, 5.0)
    truth, scores = truth_of(grades), grades.ravel() + rng.normal(size=3000) * noise
    by_day = evaluate(truth, scores, day, 300, 0)["ndcg"]
    by_query = evaluate(truth, scores, truth.queries, 300, 0)["ndcg"]
    assert by_day.high - by_day.low > 1.5 * (by_query.high - by_query.low)


def test_the_loss_is_one_less_ndcg_of_each_query():
    grades, scores = searches(queries=30)
    model = judged(truth_of(grades), scores.ravel())
    assert 1 - model.losses().mean() == pytest.approx(model.points()["ndcg"])
    assert len(model.losses()) == (grades.max(axis=1) > 0).sum()


def test_what_is_told_by_day_and_by_position():
    grades = np.array([[2.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    scores = np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    seen = ranking(truth_of(grades, at=2), scores.ravel(), np.repeat([19723, 19724, 19724], 3))
    assert [(one.day, one.queries) for one in seen.days] == [("2024-01-01", 1), ("2024-01-02", 2)]
    second = (1 / np.log2(3) + 1) / 2
    assert seen.days[1].ndcg == pytest.approx(second)
    assert [(p.position, p.gain, p.ideal) for p in seen.positions] == [
        (1, pytest.approx(4 / 3), pytest.approx(5 / 3)),
        (2, pytest.approx(1 / 3), pytest.approx(1 / 3)),
    ]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_score_that_is_not_finite_is_refused(bad):
    truth = truth_of(np.array([[1.0, 0.0]]))
    with pytest.raises(EvidenceError, match="1 of 2 scores are not finite"):
        point_metrics(truth, np.array([0.1, bad]))
