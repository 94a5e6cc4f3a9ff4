"""The metrics of numbers are scikit-learn's, in the label's unit, whatever its size."""

import numpy as np
import pytest
from sklearn import metrics as reference

from ml_assets.assets.evaluation_report.metrics.metrics import evaluate, judged, point_metrics
from ml_assets.assets.evaluation_report.metrics.regression import (
    predicted_against_observed,
    residuals,
)
from ml_assets.assets.evaluation_report.rows import Truth
from ml_assets.errors import EvidenceError


def rows(count=3000, seed=0, offset=0.0):
    rng = np.random.default_rng(seed)
    predicted = rng.normal(10, 3, count) + offset
    return Truth("regression", predicted + rng.normal(0, 2, count)), predicted[:, None]


@pytest.mark.parametrize("offset", [0.0, 1e9], ids=["near zero", "far from zero"])
def test_metrics_are_those_of_scikit_learn(offset):
    truth, predicted = rows(offset=offset)
    found = point_metrics(truth, predicted)
    expected = {
        "rmse": reference.root_mean_squared_error(truth.labels, predicted),
        "mae": reference.mean_absolute_error(truth.labels, predicted),
        "r2": reference.r2_score(truth.labels, predicted),
    }
    assert found == pytest.approx(expected, rel=1e-6)


def test_skill_is_the_share_of_the_error_of_persistence_that_is_saved():
    truth, predicted = rows()
    last = truth.labels + np.random.default_rng(4).normal(0, 4, 3000)
    series = Truth("regression", truth.labels, persistence=last)
    errors = [((truth.labels - one) ** 2).mean() for one in (predicted[:, 0], last)]
    assert point_metrics(series, predicted)["skill"] == pytest.approx(1 - errors[0] / errors[1])
    assert point_metrics(series, last[:, None])["skill"] == pytest.approx(0, abs=1e-12)
    found = evaluate(series, predicted, np.arange(3000), 200, 0)["skill"]
    assert found.low < found.value < found.high
    assert "skill" not in point_metrics(truth, predicted)


def test_a_constant_prediction_explains_nothing_and_a_worse_one_less():
    truth, _ = rows()
    mean = np.full((3000, 1), truth.labels.mean())
    assert point_metrics(truth, mean)["r2"] == pytest.approx(0, abs=1e-12)
    assert point_metrics(truth, mean + 5)["r2"] < -1


def test_a_label_that_never_varies_has_no_r2():
    truth = Truth("regression", np.full(50, 3.0))
    found = evaluate(truth, np.full((50, 1), 2.0), np.arange(50), 20, 0)
    assert set(found) == {"rmse", "mae"}
    assert (found["rmse"].value, found["mae"].value) == (1.0, 1.0)


def test_the_intervals_hold_what_other_rows_say():
    expected = point_metrics(*rows(count=200_000, seed=99))
    inside = dict.fromkeys(expected, 0)
    for seed in range(40):
        truth, predicted = rows(count=400, seed=seed)
        found = evaluate(truth, predicted, np.arange(400), 300, seed)
        for name, value in expected.items():
            inside[name] += found[name].low <= value <= found[name].high
    assert min(inside.values()) >= 34


def test_the_loss_is_the_squared_error():
    truth = Truth("regression", np.array([1.0, 4.0]))
    assert judged(truth, np.array([0.0, 6.0])).losses() == pytest.approx([1.0, 4.0])


def test_deciles_tell_where_it_errs():
    rng = np.random.default_rng(0)
    predicted = rng.uniform(0, 100, 5000)
    truth = Truth("regression", predicted + np.where(predicted > 90, 10.0, 0.0))
    seen = residuals(truth, predicted[:, None])
    assert len(seen.deciles) == 10
    assert sum(one.rows for one in seen.deciles) == 5000
    assert [round(one.median) for one in seen.deciles] == [0] * 9 + [10]
    assert seen.label_mean == pytest.approx(truth.labels.mean())
    last = predicted_against_observed(truth, predicted[:, None])[-1]
    assert last.observed - last.predicted == pytest.approx(10, abs=0.5)


def test_equal_predictions_share_one_bin():
    truth, _ = rows(count=100)
    (only,) = predicted_against_observed(truth, np.full((100, 1), 7.0))
    assert (only.predicted, only.rows) == (7.0, 100)
    assert only.observed == pytest.approx(truth.labels.mean())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_prediction_that_is_not_finite_is_refused(bad):
    with pytest.raises(EvidenceError, match="1 of 2 predictions are not finite"):
        point_metrics(Truth("regression", np.array([1.0, 2.0])), np.array([1.0, bad]))
