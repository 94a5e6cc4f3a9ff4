"""The recommendation: keep the model where the declared effect was shown, and nowhere else."""

import re

import numpy as np
import pytest

from ml_assets.assets.evaluation_report.build_report import recommend
from ml_assets.assets.evaluation_report.rows import Holdout, Truth
from ml_assets.spec.pipeline import PipelineSpec

ROWS = 2000


def declared(spec, *, family="tabm", kind="gradient_boosting", training=None, **simple):
    """The spec with a simple model to be held against."""
    by = {"by": ["carrier"]} if kind == "group_rate" else {}
    raw = spec.model_dump(mode="json")
    raw["model"] = {"family": family}
    raw["training"] = training or {}
    raw["evaluation"]["baselines"] += [{"kind": kind, "name": "simple", **by}]
    raw["evaluation"]["simple_model"] = {"baseline": "simple", "min_effect": 0.005, **simple}
    return PipelineSpec.model_validate(raw)


def held_out(noise=0.0):
    """A holdout, the probabilities that made it, and worse ones."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(0.05, 0.95, ROWS)
    labels = (rng.random(ROWS) < truth).astype(np.int64)
    worse = np.clip(truth + noise * rng.normal(size=ROWS), 0.02, 0.98)
    return (
        Holdout(Truth("binary", labels), np.arange(ROWS), {}, ("", "")),
        truth[:, None],
        worse[:, None],
    )


def recommended(spec, model, simple, holdout):
    found = recommend(spec, holdout, model, {"simple": simple})
    assert found is not None
    return found


def test_a_network_that_is_better_by_the_effect_is_kept(spec):
    holdout, good, worse = held_out(noise=0.2)
    found = recommended(declared(spec), good, worse, holdout)
    assert found.keep
    assert found.difference.value > 0.005
    assert found.reason.startswith("The network is better than gradient boosting by 0.")
    assert found.reason.endswith("asked for: keep it.")


@pytest.mark.parametrize(
    ("noise", "effect"),
    [
        pytest.param(0.03, 0.005, id="hardly better"),
        pytest.param(0.2, 0.5, id="better, but not by what was asked for"),
    ],
)
def test_a_network_that_is_not_better_by_the_effect_is_not_kept(spec, noise, effect):
    holdout, good, worse = held_out(noise)
    found = recommended(declared(spec, min_effect=effect), good, worse, holdout)
    assert not found.keep
    assert found.reason.endswith(
        f"not better by the declared {effect}: release gradient boosting instead,"
        " model: {family: lightgbm}."
    )


def test_a_network_that_is_worse_is_called_that(spec):
    holdout, good, worse = held_out(noise=0.2)
    found = recommended(declared(spec), worse, good, holdout)
    assert not found.keep
    assert re.fullmatch(
        r"The network is worse than gradient boosting by \S+ \[\S+ \S+\] log-loss: release gradient"
        r" boosting instead, model: \{family: lightgbm\}\.",
        found.reason,
    )
    low, high = map(float, re.findall(r"[-+][\d.]+", found.reason)[:2])
    assert 0 < low < -found.difference.value < high


def test_the_advice_is_a_spec_that_passes(spec):
    holdout, good, worse = held_out(noise=0.2)
    asked = declared(spec, training={"epochs": 3, "batch_size": 72, "seed": 1})
    found = recommended(asked, worse, good, holdout)
    assert found.reason.endswith(
        "model: {family: lightgbm}, and without training.batch_size and training.epochs, which"
        " trees do not have."
    )
    declared(spec, family="lightgbm", training={"seed": 1})


def test_the_advice_is_the_same_from_a_record_which_has_every_field(spec):
    holdout, good, worse = held_out(noise=0.2)
    asked = declared(spec, training={"epochs": 3, "seed": 1})
    recorded = type(asked).model_validate(asked.model_dump())
    assert recommended(recorded, worse, good, holdout) == recommended(asked, worse, good, holdout)


def test_an_effect_that_may_be_chance_is_no_effect(spec):
    holdout, good, worse = held_out(noise=0.2)
    few = Holdout(Truth("binary", holdout.truth.labels[:20]), np.arange(20), {}, ("", ""))
    found = recommended(declared(spec, min_effect=0.0), worse[:20], good[:20], few)
    if found.difference.value < 0:  # 20 rows say nothing: the other one may be the lucky one
        found = recommended(declared(spec, min_effect=0.0), good[:20], worse[:20], few)
    assert found.difference.low < 0 < found.difference.value
    assert not found.keep
    assert "may be chance" in found.reason


@pytest.mark.parametrize(
    ("family", "kind", "advice"),
    [
        ("lightgbm", "gradient_boosting", "The model is gradient boosting itself, so there is"),
        ("tabm", "group_rate", "the baseline simple would do as well"),
    ],
)
def test_the_advice_is_about_what_can_be_done(spec, family, kind, advice):
    holdout, good, _ = held_out()
    found = recommended(declared(spec, family=family, kind=kind), good, good, holdout)
    assert advice in found.reason


def test_without_a_simple_model_nothing_is_recommended(spec):
    holdout, good, _ = held_out()
    assert recommend(spec, holdout, good, {}) is None
