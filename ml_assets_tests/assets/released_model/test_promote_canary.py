"""From canary to production: only by a decision of its own, on what holds now."""

import pytest

from ml_assets.actions.override import OverrideMade, override
from ml_assets.assets.released_model.promote import AlreadyReleased, Released, release
from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.records.ledger.stages import champion, stages
from ml_assets_tests.assets.released_model.promoting import (
    CANARY,
    ask,
    go_on,
    in_canary,
    judged,
    reasons,
)
from ml_assets_tests.records.conftest import PIPELINE, A, B, C, decision, evidence, gate


def test_gates_lead_to_canary_and_the_canarys_own_decision_to_production(store):
    there = in_canary(store)
    assert stages(read(store, PIPELINE)) == {"canary": A}
    moved = go_on(store, there)
    assert isinstance(moved, Released)
    line = moved.entry
    assert (line.stage, line.decided_by, line.canary) == ("production", 3, None)
    assert stages(read(store, PIPELINE)) == {"production": A}
    again = in_canary(store, B, champion=A)
    assert stages(read(store, PIPELINE)) == {"production": A, "canary": B}
    second = go_on(store, again)
    assert isinstance(second, Released)
    assert second.entry.replaced == A


def test_a_refused_canary_is_let_in_by_no_spec_that_asks_for_none_any_more(store):
    in_canary(store, passed=False)
    said = reasons(ask(store, evidence(A)))
    assert "Model aaaaaaaaaaaa was refused as canary (ledger line 3:" in said
    assert "production" not in stages(read(store, PIPELINE))
    assert isinstance(override(store, PIPELINE, A, "Ada", "the week was odd"), OverrideMade)
    assert isinstance(ask(store, evidence(A)), Released)


def test_without_a_canary_decision_nothing_goes_to_production(store, decide):
    decide(A)
    release(store, PIPELINE, evidence(A), CANARY, "me", "run")
    said = reasons(go_on(store, evidence(A)))
    assert "no canary decision on model aaaaaaaaaaaa" in said


@pytest.mark.parametrize(
    "moved", [{"report": "99" * 32}, {"data": "99" * 32}, {"code": "x"}, {"policy": "99" * 32}]
)
def test_canary_evidence_that_moved_is_refused(store, moved):
    there = in_canary(store)
    assert "is stale" in reasons(go_on(store, there.model_copy(update=moved)))
    assert champion(read(store, PIPELINE)) is None


def test_a_canary_that_was_compared_with_an_older_champion_is_refused(store):
    in_canary(store, A)
    go_on(store, evidence(A, report="c1" * 32, data="c2" * 32, code="canary"))
    there = in_canary(store, B, champion=A)
    judged(store, there.model_copy(update={"champion": C}))
    assert "it is aaaaaaaaaaaa now" in reasons(go_on(store, there))


def test_a_canary_that_did_not_pass_stays_until_a_person_answers_for_it(store):
    there = in_canary(store, passed=False)
    assert "refused the model. champion" in reasons(go_on(store, there))
    assert stages(read(store, PIPELINE)) == {"canary": A}
    said = override(store, PIPELINE, None, "ada", "the strike")
    assert isinstance(said, OverrideMade)
    assert (said.entry.overrides, said.entry.gates) == (3, ("champion",))
    moved = go_on(store, there)
    assert isinstance(moved, Released)
    assert moved.entry.reason == "as canary: override by ada in line 4: the strike"


def test_a_model_that_is_not_in_canary_does_not_go_on(store):
    there = in_canary(store, A)
    in_canary(store, B)
    assert "Model aaaaaaaaaaaa is not in canary: bbbbbbbbbbbb is" in reasons(go_on(store, there))


def test_a_canary_whose_gates_refused_it_since_does_not_go_on(store):
    there = in_canary(store)
    record_decision(store, decision(evidence(A), gates=(gate(passed=False),)), "me")
    assert "refused the model. floor" in reasons(go_on(store, there))


def test_a_canarys_decision_does_not_stand_for_that_of_its_gates(store):
    about = evidence(A)
    judged(store, about)
    assert "no decision on model" in reasons(release(store, PIPELINE, about, CANARY, "me", "r"))


def test_the_model_in_production_is_not_sent_through_canary_again(store):
    there = in_canary(store)
    go_on(store, there)
    again = release(store, PIPELINE, evidence(A), CANARY, "me", "run")
    assert isinstance(again, AlreadyReleased)
    assert again.entry.stage == "production"
