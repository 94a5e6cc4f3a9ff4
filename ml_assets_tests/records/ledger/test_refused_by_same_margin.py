"""Three models in a row that one margin refused: what another would have done is said."""

import pytest

from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.records.ledger.replay import refused_by_same_margin, what_now
from ml_assets.reports.decisions import gates_moved
from ml_assets.spec.gates import AgainstChampion
from ml_assets.spec.records import GateResult, Interval
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
        "it refused the last 3 models by the same bound, 0.01. With the bound 0.034, 3 of them"
        " would have passed. See what else that changes:"
        f" ml-assets release what-if {PIPELINE} --gate champion"
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


@pytest.mark.parametrize(
    ("bound", "passed", "values", "would"),
    [
        pytest.param(-0.01, 0.005, (-0.02, -0.031, -0.015), "-0.031", id="a higher metric"),
        pytest.param(-0.005, -0.006, (-0.00123, -0.0031, -0.0042), "-0.0012", id="a gain"),
    ],
)
def test_a_bound_below_zero_is_rounded_so_that_all_keep_it(store, bound, passed, values, would):
    refused(store, A, passed, bound=bound, passed=True)
    for model, value in zip((B, C, D), values, strict=True):
        refused(store, model, value, bound=bound)
    found = told(store)
    assert found
    assert f"With the bound {would}, 3 of them would have passed." in found.said


def test_who_failed_another_gate_too_would_not_have_passed(store):
    refused(store, B, 0.02)
    refused(store, C, 0.02, other=False)
    refused(store, D, 0.02)
    found = told(store)
    assert found
    assert "2 of them would have passed. 1 failed other gates, too." in found.said


def advised(store, spec, estimate, end, bound, *, passed=False):
    ends = Interval(value=estimate, low=min(estimate, end), high=max(estimate, end))
    said = GateResult(
        name="champion", passed=passed, value=end, bound=bound, reason="it says", interval=ends
    )
    return what_now(read(store, PIPELINE), "production", [spec], [said], PIPELINE)


def test_a_better_model_that_too_few_rows_refuse_is_told_what_can_be_done(store):
    refused(store, B, 0.1)
    found = advised(store, MARGIN, -0.0136, 0.1, 0.066)
    assert found and found.gate == "champion"
    assert "Hold out more of them (split.holdout)" in found.said
    assert "until then the champion stays" in found.said.lower()
    assert advised(store, MARGIN, -0.0136, -0.01, 0.066, passed=True) is None
    assert advised(store, MARGIN, 0.08, 0.1, 0.066) is None, "it is worse by more than the margin"
    higher = AgainstChampion(kind="champion", margin=0.01, metric="auc")
    assert advised(store, higher, 0.02, -0.03, -0.01)
    assert advised(store, higher, -0.02, -0.03, -0.01) is None


def test_gates_that_were_declared_otherwise_at_the_last_decision_are_told(store):
    for policy, bound in (("33", 0.069), ("33", 0.069), ("44", 0.15)):
        held = gate("champion", passed=bound > 0.1, value=0.1, bound=bound)
        about = evidence(B, A, policy=policy * 32)
        record_decision(store, decision(about, gates=(held,)), "me")
        record_decision(store, decision(evidence(C, A)), "me")
    entries = read(store, PIPELINE)
    told = {entry.seq: gates_moved(entries, entry) for entry in entries}
    (seq,) = [seq for seq, said in told.items() if said]
    decided = [entry.seq for entry in entries if entry.model == B and entry.decision]
    assert seq == decided[-1]
    assert told[seq] == (
        f"the gates were declared otherwise when line {decided[-2]} decided on this model:"
        " champion had the bound 0.069 then, 0.15 now"
    )
