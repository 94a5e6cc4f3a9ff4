"""What would have happened with another bound: from what was measured, and no more than that."""

import pytest

from ml_assets.actions.override import override
from ml_assets.assets.released_model.promote import Released, release
from ml_assets.assets.released_model.rollback import Way, append_rollback
from ml_assets.errors import UnknownGate
from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.records.ledger.replay import what_if
from ml_assets.spec.gates import ReleaseSpec
from ml_assets_tests.records.conftest import PIPELINE, A, B, C, decision, evidence, gate


def judged(store, model, value, champion=None, bound=0.7, **more):
    """A decision by a floor, and the release where it passes."""
    about = evidence(model, champion)
    floor = gate("floor", passed=value >= bound, value=value, bound=bound)
    record_decision(store, decision(about, gates=(floor, gate("size")), **more), "me")
    if value >= bound:
        moved = release(store, PIPELINE, about, ReleaseSpec(), author="me", run="r")
        assert isinstance(moved, Released)


def replay(store, bound, name="floor"):
    return what_if(read(store, PIPELINE), "production", name, bound)


def test_with_the_bound_that_was_everything_is_as_it_was(store):
    judged(store, A, 0.75)
    judged(store, B, 0.6, champion=A)
    judged(store, C, 0.8, champion=A)
    found = replay(store, 0.7)
    assert [(one.passed, one.changed, one.champion, one.note) for one in found.decisions] == [
        (True, False, A, ""),
        (False, False, A, ""),
        (True, False, C, ""),
    ]
    assert (found.champion, found.is_champion) == (C, C)


def test_a_looser_bound_releases_what_was_refused_and_marks_what_cannot_be_repeated(store):
    judged(store, A, 0.75)
    judged(store, B, 0.6, champion=A)
    judged(store, C, 0.65, champion=A)
    found = replay(store, 0.58)
    assert [one.changed for one in found.decisions] == [False, True, True]
    assert [one.champion for one in found.decisions] == [A, B, C]
    assert found.decisions[1].note == ""
    assert "compared with aaaaaaaaaaaa, the champion would have been bbbbbbbbbbbb" in (
        found.decisions[2].note
    )
    assert (found.champion, found.is_champion) == (C, A)


def test_a_stricter_bound_leaves_the_model_from_before(store):
    judged(store, A, 0.75)
    judged(store, B, 0.72, champion=A)
    found = replay(store, 0.74)
    assert [one.passed for one in found.decisions] == [True, False]
    assert (found.champion, found.is_champion) == (A, B)
    assert replay(store, 0.9).champion is None


def test_a_ceiling_is_told_from_a_floor_by_what_it_decided(store):
    low = gate("cost", passed=True, value=1.0, bound=2.0)
    record_decision(store, decision(evidence(A), gates=(low,)), "me")
    assert replay(store, 0.5, "cost").decisions[0].passed is False
    assert replay(store, 1.0, "cost").decisions[0].passed is True


def test_another_gate_that_failed_still_refuses(store):
    failed = (gate("floor", passed=False, value=0.6), gate("leak", passed=False, value=0.9))
    record_decision(store, decision(evidence(A), gates=failed), "me")
    assert replay(store, 0.5).champion is None


def test_a_gate_that_decided_without_a_value_stays_as_it_was(store):
    judged(store, A, 0.75)
    blind = gate("floor", passed=False, value=None)
    record_decision(store, decision(evidence(B, A), gates=(blind,)), "me")
    assert [one.passed for one in replay(store, 0.1).decisions] == [True, False]


def test_peoples_words_stay_where_they_lead_somewhere(store):
    judged(store, A, 0.75)
    judged(store, B, 0.6, champion=A)
    override(store, PIPELINE, B, "ada", "the snow week")
    assert isinstance(
        release(store, PIPELINE, evidence(B, A), ReleaseSpec(), author="me", run="r"), Released
    )
    append_rollback(store, PIPELINE, Way(B, A), ReleaseSpec(), "grace", "late")
    assert replay(store, 0.7).champion == A
    assert replay(store, 0.76).champion == B, "A never was there to go back to"


def test_a_gate_that_nobody_measured_or_that_passes_on_both_sides_is_an_error(store):
    judged(store, A, 0.75)
    with pytest.raises(UnknownGate, match=r"'speed'.*There are: floor, size"):
        replay(store, 1.0, "speed")
    with pytest.raises(UnknownGate, match="Did you mean 'floor'"):
        replay(store, 1.0, "flor")
    both = gate("floor", passed=True, value=0.6, bound=0.7)
    record_decision(store, decision(evidence(B, A), gates=(both,)), "me")
    with pytest.raises(UnknownGate, match="on both sides"):
        replay(store, 0.5)
