"""The metrics are scikit-learn's, the intervals cover, and what is undefined is left out."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference
from sklearn.calibration import calibration_curve

from ml_assets.assets.evaluation_report.metrics.classification import calibration, confusion, curves
from ml_assets.assets.evaluation_report.metrics.metrics import (
    evaluate,
    judged,
    point_metrics,
    slice_metrics,
)
from ml_assets.assets.evaluation_report.rows import Truth
from ml_assets.errors import EvidenceError

CLASSES = ("a", "b", "c")


def binary_rows(rows=4000, seed=0, decimals=None):
    rng = np.random.default_rng(seed)
    logit = rng.normal(size=rows) - 1
    score = 1 / (1 + np.exp(-logit))
    labels = (rng.random(rows) < score).astype(np.float32)
    return labels, score if decimals is None else score.round(decimals)


def multiclass_rows(rows=3000, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet([1.0, 2.0, 3.0], rows)
    labels = np.array([rng.choice(3, p=p) for p in scores])
    return labels, scores


@pytest.mark.parametrize("decimals", [None, 1], ids=["all scores differ", "many ties"])
def test_binary_metrics_are_those_of_scikit_learn(decimals):
    labels, score = binary_rows(decimals=decimals)
    found = point_metrics(Truth("binary", labels), score[:, None])
    assert found["auc"] == pytest.approx(reference.roc_auc_score(labels, score), abs=1e-12)
    assert found["average_precision"] == pytest.approx(
        reference.average_precision_score(labels, score), abs=1e-12
    )
    assert found["log_loss"] == pytest.approx(reference.log_loss(labels, score), abs=1e-9)
    assert found["brier"] == pytest.approx(reference.brier_score_loss(labels, score), abs=1e-9)
    assert found["accuracy"] == pytest.approx(reference.accuracy_score(labels, score >= 0.5))


def test_multiclass_metrics_are_those_of_scikit_learn():
    labels, scores = multiclass_rows()
    found = point_metrics(Truth("multiclass", labels, CLASSES), scores)
    assert found["auc"] == pytest.approx(
        reference.roc_auc_score(labels, scores, multi_class="ovr", average="macro"), abs=1e-12
    )
    assert found["log_loss"] == pytest.approx(reference.log_loss(labels, scores), abs=1e-9)
    assert found["brier"] == pytest.approx(((scores - np.eye(3)[labels]) ** 2).sum(1).mean())
    assert found["accuracy"] == pytest.approx((scores.argmax(1) == labels).mean())
    assert "average_precision" not in found


def test_the_confusion_is_that_of_scikit_learn_and_only_of_several_classes():
    labels, scores = multiclass_rows(rows=300)
    found = confusion(Truth("multiclass", labels, CLASSES), scores)
    dense = [[found.get(t, {}).get(p, 0) for p in CLASSES] for t in CLASSES]
    assert dense == reference.confusion_matrix(labels, scores.argmax(1)).tolist()
    kept = labels != 2
    assert CLASSES[2] not in confusion(Truth("multiclass", labels[kept], CLASSES), scores[kept])
    assert confusion(Truth("binary", *binary_rows()[:1]), binary_rows()[1][:, None]) == {}


def test_calibration_is_that_of_scikit_learn_and_ece_is_its_weighted_gap():
    labels, score = binary_rows()
    bins = calibration(Truth("binary", labels), score, bins=15)
    observed, predicted = calibration_curve(labels, score, n_bins=15, strategy="quantile")
    assert [b.observed for b in bins] == pytest.approx(observed, abs=5e-3)
    assert [b.predicted for b in bins] == pytest.approx(predicted, abs=5e-3)
    assert sum(b.rows for b in bins) == len(labels)
    gap = sum(b.rows * abs(b.observed - b.predicted) for b in bins) / len(labels)
    assert point_metrics(Truth("binary", labels), score)["ece"] == pytest.approx(gap)


def test_row_log_loss_is_finite_for_a_surely_wrong_prediction():
    loss = judged(Truth("binary", np.array([1, 0])), np.array([[0.0], [1.0]])).losses()
    assert np.isfinite(loss).all()
    assert loss.min() > 30


@pytest.mark.parametrize("blocks", ["days", "rows"])
def test_intervals_hold_their_value_and_repeat_with_the_seed(blocks):
    labels, score = binary_rows()
    block = np.arange(4000) // (80 if blocks == "days" else 1)
    first = evaluate(Truth("binary", labels), score[:, None], block, 200, 3)
    again = evaluate(Truth("binary", labels), score[:, None], block, 200, 3)
    other = evaluate(Truth("binary", labels), score[:, None], block, 200, 4)
    assert first == again != other
    assert list(first) == ["auc", "average_precision", "log_loss", "brier", "accuracy", "ece"]
    for found in first.values():
        assert found.low <= found.value <= found.high
        assert found.low < found.high


def test_the_vectorised_bootstrap_is_the_plain_one():
    """Against resampling rows in a loop, scored by scikit-learn."""
    labels, score = binary_rows(rows=3000)
    block = np.arange(3000) // 100
    found = evaluate(Truth("binary", labels), score[:, None], block, 1000, 0)
    rng = np.random.default_rng(9)
    plain = {"auc": [], "average_precision": [], "log_loss": []}
    for _ in range(250):
        rows = np.concatenate([np.flatnonzero(block == b) for b in rng.integers(0, 30, 30)])
        plain["auc"].append(reference.roc_auc_score(labels[rows], score[rows]))
        plain["average_precision"].append(
            reference.average_precision_score(labels[rows], score[rows])
        )
        plain["log_loss"].append(reference.log_loss(labels[rows], score[rows]))
    for name, draws in plain.items():
        low, high = np.percentile(draws, [2.5, 97.5])
        width = high - low
        assert found[name].low == pytest.approx(low, abs=0.25 * width)
        assert found[name].high == pytest.approx(high, abs=0.25 * width)


def test_days_that_differ_widen_the_interval():
    rng = np.random.default_rng(0)
    day = np.arange(6000) // 200
    shift = rng.normal(size=30)[day]
    score = np.full(6000, 0.3)
    labels = (rng.random(6000) < 1 / (1 + np.exp(-(shift - 1)))).astype(int)
    by_day = evaluate(Truth("binary", labels), score, day, 300, 0)["log_loss"]
    by_row = evaluate(Truth("binary", labels), score, np.arange(6000), 300, 0)["log_loss"]
    assert by_day.high - by_day.low > 3 * (by_row.high - by_row.low)


def test_a_single_block_does_not_pass_for_certainty():
    labels, score = binary_rows(rows=500)
    found = evaluate(Truth("binary", labels), score, np.zeros(500), 100, 0)
    assert found["auc"].high - found["auc"].low > 0.01


def test_ranking_metrics_are_absent_where_only_one_class_is_present():
    found = evaluate(Truth("binary", np.zeros(50)), np.full(50, 0.2), np.arange(50), 20, 0)
    assert set(found) == {"log_loss", "brier", "accuracy", "ece"}
    labels, scores = multiclass_rows()
    kept = labels != 2
    assert "auc" not in point_metrics(Truth("multiclass", labels[kept], CLASSES), scores[kept])
    assert curves(Truth("binary", np.zeros(50)), np.full(50, 0.2)) == (None, None)


def test_curves_are_short_keep_their_ends_and_their_area():
    labels, score = binary_rows(rows=20_000)
    roc, precision_recall = curves(Truth("binary", labels), score[:, None])
    assert roc is not None and precision_recall is not None
    assert len(roc.x) <= 200 and len(precision_recall.x) <= 200
    assert (roc.x[0], roc.y[0], roc.x[-1], roc.y[-1]) == (0, 0, 1, 1)
    assert (precision_recall.x[0], precision_recall.x[-1]) == (0, 1)
    assert precision_recall.y[-1] == pytest.approx(labels.mean(), abs=1e-4)
    area = np.trapezoid(roc.y, roc.x)
    assert area == pytest.approx(reference.roc_auc_score(labels, score), abs=1e-3)
    assert curves(Truth("multiclass", labels), score) == (None, None)


def test_slices_are_the_largest_values_with_enough_rows():
    labels, score = binary_rows(rows=2000)
    column = pl.Series(["big"] * 1000 + ["small"] * 700 + [None] * 250 + ["tiny"] * 50)
    days = np.arange(2000) // 50
    found = slice_metrics(Truth("binary", labels), score, {"carrier": column}, days)
    assert [(s.value, s.rows) for s in found] == [("big", 1000), ("small", 700), ("(none)", 250)]
    assert found[0].metrics == point_metrics(Truth("binary", labels[:1000]), score[:1000])
    assert all(s.intervals["auc"].low < s.metrics["auc"] < s.intervals["auc"].high for s in found)
    top = slice_metrics(Truth("binary", labels), score, {"carrier": column}, days, values=1)
    assert [s.value for s in top] == ["big"]


def test_a_one_class_slice_has_no_ranking_metrics():
    labels, score = binary_rows(rows=1000)
    labels[:500] = 0
    column = pl.Series(["never"] * 500 + ["mixed"] * 500)
    slices = slice_metrics(Truth("binary", labels), score, {"x": column}, np.arange(1000))
    found = {s.value: s.metrics for s in slices}
    assert "auc" not in found["never"] and "log_loss" in found["never"]
    assert "auc" in found["mixed"]


@pytest.mark.parametrize("bad", [np.nan, -0.1, 1.1, np.inf])
def test_what_is_no_probability_is_refused(bad):
    with pytest.raises(EvidenceError, match="1 of 3 predictions are not probabilities"):
        point_metrics(Truth("binary", np.array([0, 1, 0])), np.array([0.1, bad, 0.3]))


def test_an_empty_holdout_is_refused():
    with pytest.raises(EvidenceError, match="no rows"):
        point_metrics(Truth("binary", np.zeros(0)), np.zeros((0, 1)))


@pytest.mark.parametrize(
    ("labels", "scores"),
    [
        (np.array([0, 1]), np.zeros((3, 1))),
        (np.array([0, 1]), np.zeros((2, 2))),
        (np.array([0, 2]), np.zeros((2, 1))),
        (np.array([0, 0.5]), np.zeros((2, 1))),
    ],
    ids=["other rows", "two outputs", "a third class", "half a label"],
)
def test_misuse_is_a_value_error(labels, scores):
    with pytest.raises(ValueError):
        point_metrics(Truth("binary", labels), scores)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), min_size=2, max_size=60))
def test_ranking_metrics_are_those_of_scikit_learn_for_any_ties(rows):
    labels = np.array([label for label, _ in rows], dtype=int)
    score = np.array([score / 20 for _, score in rows])
    found = point_metrics(Truth("binary", labels), score)
    if len(set(labels)) < 2:
        assert "auc" not in found
        return
    assert found["auc"] == pytest.approx(reference.roc_auc_score(labels, score))
    assert found["average_precision"] == pytest.approx(
        reference.average_precision_score(labels, score)
    )
