"""An override: of exactly one refusal, by somebody, and worth nothing for any other."""

import pytest

from ml_assets.actions.override import OverrideMade, override
from ml_assets.assets.released_model.promote import Refused, Released, release, verify
from ml_assets.errors import Recalled, UnknownModel
from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.records.ledger.stages import champion
from ml_assets.spec.gates import ReleaseSpec
from ml_assets_tests.records.conftest import (
    PIPELINE,
    A,
    B,
    decision,
    evidence,
    gate,
    recall,
    refused,
    released,
)


def ask(store, model=None, author="ada", reason="the snow week is an exception"):
    return override(store, PIPELINE, model, author, reason)


def promote(store, about):
    return release(store, PIPELINE, about, ReleaseSpec(), author="team", run="run-9")


def reasons(outcome):
    assert isinstance(outcome, Refused), outcome
    return " ".join(outcome.reasons)


def test_a_refused_model_is_released_by_an_override_and_the_line_says_whose(store):
    line = refused(store, A)
    assert "refused the model" in reasons(promote(store, evidence(A)))
    said = ask(store)
    assert isinstance(said, OverrideMade)
    assert (said.entry.kind, said.entry.overrides, said.entry.gates) == (
        "override",
        line.seq,
        ("floor",),
    )
    moved = promote(store, evidence(A))
    assert isinstance(moved, Released)
    assert moved.entry.decided_by == said.entry.seq
    assert moved.entry.reason == "override by ada in line 2: the snow week is an exception"
    assert champion(read(store, PIPELINE)) == A


def test_the_same_decision_again_keeps_the_override_and_another_one_makes_it_void(store):
    refused(store, A)
    ask(store)
    refused(store, A)
    assert not isinstance(verify(read(store, PIPELINE), evidence(A)), Refused)
    refused(store, A, name="calibration")
    said = reasons(verify(read(store, PIPELINE), evidence(A)))
    assert "line 3) refused the model. calibration" in said


@pytest.mark.parametrize("moved", [{"report": "99" * 32}, {"champion": B}, {"data": "98" * 32}])
def test_an_override_makes_up_for_failed_gates_and_not_for_evidence_that_moved(store, moved):
    refused(store, A)
    ask(store)
    now = evidence(A).model_copy(update=moved)
    assert "is stale" in reasons(verify(read(store, PIPELINE), now))


def test_an_override_of_one_model_says_nothing_about_another(store):
    refused(store, A)
    ask(store)
    refused(store, B)
    assert "refused the model" in reasons(promote(store, evidence(B)))


def test_a_forged_override_of_another_models_decision_counts_for_neither(store):
    """Its number is right, its model is not."""
    refused(store, A)
    refused(store, B)
    said = ask(store, model=A)
    forged = said.entry.model_copy(update={"model": B})
    entries = (*read(store, PIPELINE)[:2], forged)
    assert isinstance(verify(entries, evidence(A)), Refused)
    assert isinstance(verify(entries, evidence(B)), Refused)


def test_a_model_that_may_not_be_used_is_not_overridden_and_no_line_is_written(store):
    refused(store, A)
    recall(store, A)
    with pytest.raises(Recalled, match="is recalled by ann"):
        ask(store)
    assert len(read(store, PIPELINE)) == 1


def test_without_a_refusal_there_is_nothing_to_override(store):
    assert "no decision on any model" in reasons(ask(store))
    released(store, A)
    assert "let it pass" in reasons(ask(store))
    with pytest.raises(UnknownModel):
        ask(store, model=B)


def test_a_decision_that_passes_after_the_override_releases_by_itself(store):
    refused(store, A)
    ask(store)
    record_decision(store, decision(evidence(A), gates=(gate(), gate("size"))), "me")
    moved = promote(store, evidence(A))
    assert isinstance(moved, Released)
    assert (moved.entry.decided_by, moved.entry.reason) == (
        3,
        "decision in line 3: all gates passed",
    )


def test_saying_it_again_writes_nothing_and_another_reason_is_another_line(store):
    refused(store, A)
    first, again = ask(store), ask(store)
    assert first == again
    other = ask(store, reason="and the flood")
    assert isinstance(other, OverrideMade)
    assert other.entry.seq == 3


@pytest.mark.parametrize(("author", "reason"), [("", "why"), (" ", "why"), ("ada", " \n")])
def test_nobody_and_no_reason_override_nothing(store, author, reason):
    refused(store, A)
    assert "needs an author and a reason" in reasons(ask(store, author=author, reason=reason))
    assert len(read(store, PIPELINE)) == 1
