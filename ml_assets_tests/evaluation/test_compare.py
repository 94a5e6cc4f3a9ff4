"""The paired comparison: sure where the models differ, unsure where they do not."""

import numpy as np
import pytest

from ml_assets.evaluation.compare import Pair
from ml_assets.evaluation.metrics import point_metrics
from ml_assets.evaluation.rows import Truth


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
