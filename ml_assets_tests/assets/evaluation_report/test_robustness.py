"""Missing and shifted inputs: what a model leans on shows, and only that."""

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.evaluation_report.gate_estimates import estimates
from ml_assets.assets.evaluation_report.robustness import Perturbed, spoil
from ml_assets.assets.evaluation_report.rows import Holdout, Truth
from ml_assets.assets.released_model.gates.decide import decide
from ml_assets.spec.gates import Robustness


def robust(**more):
    return Robustness(kind="robustness", **{"at_most": 0.05, **more})


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    distance = rng.normal(size=6000)
    late = rng.random(6000) < 1 / (1 + np.exp(-2 * distance))
    return pl.DataFrame({"distance": distance, "carrier": ["AA", "UA"] * 3000, "late": late})


def holdout_of(rows):
    labels = rows["late"].cast(pl.Int64).to_numpy()
    return Holdout(Truth("binary", labels), np.arange(len(rows)) % 40, {}, ("", ""))


def leaning(frame):
    """A model that knows the distance; of a missing one it takes the mean."""
    return 1 / (1 + np.exp(-2 * frame["distance"].fill_null(0.0).to_numpy()[:, None]))


def blind(frame):
    return np.full((len(frame), 1), 0.5)


def said(spec, rows, gate, model, report, measured):
    spec = spec.model_copy(update={"gates": (gate,)})
    spoiled = spoil(spec, rows, {"distance": 1.0})
    perturbed = Perturbed(spoiled, model(spoiled.stacked))
    found = estimates(spec, holdout_of(rows), model(rows), None, perturbed)
    told = report.model_copy(update={"estimates": found})
    (result,) = decide([gate], told, measured)
    return result


def test_without_the_gate_nothing_is_spoiled(spec, rows):
    assert spoil(spec, rows, {"distance": 1.0}) is None


def test_each_copy_is_spoiled_in_one_way_and_equal_rows_give_equal_copies(spec, rows):
    asked = spec.model_copy(update={"gates": (robust(missing=0.3, shift=2.0),)})
    found = spoil(asked, rows, {"distance": 0.5})
    assert found.stacked.equals(spoil(asked, rows, {"distance": 0.5}).stacked)
    size = len(found.sampled)
    plain = rows[found.sampled]
    missing, up, down = (found.stacked[i * size : (i + 1) * size] for i in range(3))
    assert [about for _, about in found.cases] == [
        "30% of the inputs missing",
        "every number raised by 2 deviations",
        "every number lowered by 2 deviations",
    ]
    for name in ("distance", "carrier"):
        assert missing[name].null_count() / size == pytest.approx(0.3, abs=0.03)
    assert up["distance"].to_list() == pytest.approx((plain["distance"] + 1).to_list())
    assert down["distance"].to_list() == pytest.approx((plain["distance"] - 1).to_list())
    assert up["carrier"].equals(plain["carrier"]) and missing["late"].equals(plain["late"])


def test_a_model_that_leans_on_what_goes_missing_is_refused(spec, rows, report, measured):
    gate = robust(missing=0.8, shift=None)
    result = said(spec, rows, gate, leaning, report, measured)
    assert not result.passed and result.interval.low > 0.05
    assert "80% of the inputs missing" in result.reason
    assert said(spec, rows, gate, blind, report, measured).passed


def test_the_worst_case_decides(spec, rows, report, measured):
    result = said(spec, rows, robust(missing=0.01, shift=1.5), leaning, report, measured)
    assert not result.passed
    assert "by 1.5 deviations" in result.reason and "the worst of 3" in result.reason
    mild = said(spec, rows, robust(missing=0.01, shift=0.02), leaning, report, measured)
    assert mild.passed, mild.reason


def test_a_model_that_was_not_tried_is_refused(spec, rows, report, measured):
    gate = robust()
    spec = spec.model_copy(update={"gates": (gate,)})
    assert estimates(spec, holdout_of(rows), blind(rows), None, None) == {}
    (result,) = decide([gate], report, measured)
    assert not result.passed
