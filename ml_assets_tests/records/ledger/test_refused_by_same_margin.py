"""Three models in a row that one margin refused: what another would have done is said."""

from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.records.ledger.replay import refused_by_same_margin
from ml_assets.spec.gates import AgainstChampion
from ml_assets_tests.records.conftest import PIPELINE, A, B, C, decision, evidence, gate

D = "d" * 64
MARGIN = AgainstChampion(kind="champion", margin=0.01, metric="rmse")


def refused(store, model, value, *, bound=0.01, passed=False, other=True):
    """A decision in which the worse end of the interval lies beyond the margin."""
    held = gate("champion", passed=passed, value=value, bound=bound)
    gates = (held, gate("size", passed=other))
    record_decision(store, decision(evidence(model, A), gates=gates), "me")


def told(store):
    return refused_by_same_margin(read(store, PIPELINE), "production", [MARGIN], PIPELINE)


def test_three_models_in_a_row_are_told_with_the_bound_that_all_would_keep(store):
    refused(store, A, 0.005, passed=True)
    for model, value in ((B, 0.021), (C, 0.0333)):
        refused(store, model, value)
        assert told(store) is None, "two may be chance"
    refused(store, D, 0.015)
    found = told(store)
    assert found
    assert found.gate == "champion"
    assert found.said == (
        "it refused the last 3 models by the same bound, 0.01. Held to 0.034, 3 of them would have"
        f" passed. See what else that changes: ml-assets release what-if {PIPELINE} --gate champion"
        " --bound 0.034"
    )


def test_a_model_that_is_decided_on_again_is_one_model(store):
    for _ in range(3):
        refused(store, B, 0.02)
    assert told(store) is None


def test_a_release_or_another_bound_between_them_ends_the_row(store):
    refused(store, B, 0.02)
    refused(store, C, 0.005, passed=True)
    refused(store, D, 0.02)
    refused(store, B, 0.02)
    assert told(store) is None
    refused(store, C, 0.03, bound=0.015)
    assert told(store) is None


def test_a_higher_metric_has_its_bound_below_zero(store):
    refused(store, A, 0.005, bound=-0.01, passed=True)
    for model, value in ((B, -0.02), (C, -0.031), (D, -0.015)):
        refused(store, model, value, bound=-0.01)
    found = told(store)
    assert found
    assert "Held to -0.031, 3 of them would have passed." in found.said


def test_who_failed_another_gate_too_would_not_have_passed(store):
    refused(store, B, 0.02)
    refused(store, C, 0.02, other=False)
    refused(store, D, 0.02)
    found = told(store)
    assert found
    assert "2 of them would have passed. 1 failed other gates, too." in found.said
