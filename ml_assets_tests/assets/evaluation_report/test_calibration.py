"""Calibration: right probabilities pass, overconfident ones do not, and no answer is no pass."""

import numpy as np
import pytest

from ml_assets.assets.evaluation_report.metrics.calibration import reliability
from ml_assets.assets.evaluation_report.rows import Holdout, Truth
from ml_assets.assets.released_model.gates.decide import decide
from ml_assets.spec.gates import Calibrated

MEASURES = ("ece", "slope", "intercept")


def calibrated(measure, at_most):
    return Calibrated(kind="calibration", measure=measure, at_most=at_most)


def world(rows=20_000, seed=0, days=50):
    """A holdout, and the true log-odds of each row."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1, 1, rows)
    labels = (rng.random(rows) < 1 / (1 + np.exp(-odds))).astype(int)
    return Holdout(Truth("binary", labels), np.arange(rows) % days, {}, ("", "")), odds


def said(gate, report, measured, found):
    told = report.model_copy(update={"estimates": {gate.name: (found,)}})
    (result,) = decide([gate], told, measured)
    return result


def chance(odds):
    return 1 / (1 + np.exp(-odds))[:, None]


@pytest.mark.parametrize(("measure", "bound"), [("ece", 0.03), ("slope", 0.1), ("intercept", 0.1)])
def test_true_probabilities_pass(report, measured, measure, bound):
    holdout, odds = world()
    gate = calibrated(measure, bound)
    result = said(gate, report, measured, reliability(gate, holdout, chance(odds), 400, 0))
    assert result.passed, result.reason
    assert result.interval is not None and result.value <= bound


@pytest.mark.parametrize(
    ("measure", "bound", "spoil"),
    [
        ("ece", 0.03, lambda odds: 2 * odds),
        ("slope", 0.1, lambda odds: 2 * odds),
        ("slope", 0.1, lambda odds: odds / 2),
        ("intercept", 0.1, lambda odds: odds + 0.5),
    ],
)
def test_probabilities_that_are_no_frequencies_fail(report, measured, measure, bound, spoil):
    holdout, odds = world()
    gate = calibrated(measure, bound)
    result = said(gate, report, measured, reliability(gate, holdout, chance(spoil(odds)), 400, 0))
    assert not result.passed
    assert "not shown to be within" in result.reason


def test_slope_and_intercept_are_those_of_the_line():
    holdout, odds = world(60_000)
    slope = reliability(calibrated("slope", 1), holdout, chance(2 * odds), 400, 0).interval
    assert slope.low < 0.5 < slope.high and slope.high - slope.low < 0.05
    level = reliability(calibrated("intercept", 1), holdout, chance(odds + 0.7), 400, 0).interval
    assert level.low < -0.7 < level.high and level.high - level.low < 0.1


def test_few_rows_do_not_show_that_a_model_is_calibrated(report, measured):
    """The burden of proof is the model's: the same probabilities pass with more rows."""
    gate = calibrated("slope", 0.1)
    few, odds = world(300)
    assert not said(gate, report, measured, reliability(gate, few, chance(odds), 400, 0)).passed


@pytest.mark.parametrize("measure", ["slope", "intercept"])
def test_a_label_that_never_varies_has_no_line_and_is_refused(report, measured, measure):
    _, odds = world(500)
    flat = Holdout(Truth("binary", np.zeros(500, int)), np.arange(500) % 20, {}, ("", ""))
    gate = calibrated(measure, 0.5)
    found = reliability(gate, flat, chance(odds), 100, 0)
    assert found.interval is None
    result = said(gate, report, measured, found)
    assert not result.passed and result.reason.endswith("refused")


@pytest.mark.parametrize("measure", MEASURES)
def test_a_report_without_it_is_refused(report, measured, measure):
    (result,) = decide([calibrated(measure, 0.5)], report, measured)
    assert not result.passed
