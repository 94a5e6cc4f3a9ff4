"""Rollback: to a model that was there, by one line, and not undone by an old decision."""

import pytest

from ml_assets.actions.override import override
from ml_assets.assets.released_model.promote import Refused, Released, release
from ml_assets.assets.released_model.rollback import (
    AlreadyBack,
    RolledBack,
    Way,
    append_rollback,
    way_back,
)
from ml_assets.errors import UnknownModel
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion, stage_of, stages
from ml_assets.spec.gates import ReleaseSpec
from ml_assets_tests.records.conftest import PIPELINE, A, B, C, evidence, refused, released

SPEC = ReleaseSpec()


def ask(store, to=None, way=None):
    found = way or way_back(read(store, PIPELINE), SPEC, to)
    assert isinstance(found, Way), found
    return append_rollback(store, PIPELINE, found, SPEC, "ada", "complaints")


def walk(store):
    """A, then B, then C in production."""
    released(store, A)
    released(store, B, champion=A)
    released(store, C, champion=B)


def refusal(store, to=None):
    found = way_back(read(store, PIPELINE), SPEC, to)
    assert isinstance(found, Refused), found
    return " ".join(found.reasons)


def test_by_default_the_model_from_before_comes_back_and_its_line_says_who_and_why(store):
    walk(store)
    moved = ask(store)
    assert isinstance(moved, RolledBack)
    line = moved.entry
    assert (line.model, line.replaced, line.because) == (B, C, "rollback")
    assert (line.author, line.reason) == ("ada", "complaints")
    assert stages(read(store, PIPELINE)) == {"production": B}
    assert stage_of(read(store, PIPELINE), C) == "archived"


def test_rolling_back_twice_goes_two_models_back_and_not_forth_again(store):
    walk(store)
    ask(store)
    ask(store)
    assert champion(read(store, PIPELINE)) == A
    assert "No model was in production before aaaaaaaaaaaa" in refusal(store)


def test_the_model_rolled_back_from_is_not_released_again_by_its_old_decision(store):
    """The champion is again the one it was compared with, so all of its evidence fits."""
    released(store, A)
    released(store, B, champion=A)
    ask(store)
    again = release(store, PIPELINE, evidence(B, champion=A), SPEC, author="team", run="run-2")
    assert isinstance(again, Refused)
    assert "ada rolled back from this model to aaaaaaaaaaaa (ledger line 5" in again.reasons[0]
    assert champion(read(store, PIPELINE)) == A


def test_the_next_model_is_compared_with_the_one_that_came_back(store):
    released(store, A)
    released(store, B, champion=A)
    ask(store)
    stale = release(store, PIPELINE, evidence(C, champion=B), SPEC, author="team", run="run-3")
    assert isinstance(stale, Refused)
    assert released(store, C, champion=A).replaced == A


def test_a_person_puts_the_model_back_that_another_rolled_back_from(store):
    released(store, A)
    released(store, B, champion=A)
    ask(store)
    assert isinstance(ask(store, to=B[:6]), RolledBack)
    again = release(store, PIPELINE, evidence(B, champion=A), SPEC, author="team", run="run-2")
    assert not isinstance(again, Refused | Released), "it is there already"


def test_a_model_that_never_was_there_does_not_come_back_whatever_was_decided_on_it(store, decide):
    """A release asks more of it: the newest evidence, the sources, the code."""
    released(store, A)
    decide(B, champion=A)
    refused(store, C, champion=A)
    assert "bbbbbbbbbbbb was never released to production" in refusal(store, B)
    assert "cccccccccccc was never released to production" in refusal(store, C)
    override(store, PIPELINE, C, "ada", "because")
    assert "never released to production" in refusal(store, C), "an override is for a release"
    assert isinstance(ask(store, way=Way(A, B)), Refused)
    assert champion(read(store, PIPELINE)) == A
    with pytest.raises(UnknownModel):
        way_back(read(store, PIPELINE), SPEC, "dddddd")


def test_without_a_release_there_is_nothing_to_roll_back_from(store, decide):
    assert "nothing to roll back from" in refusal(store)
    decide(A)
    released(store, B, to="staging")
    assert "nothing to roll back from" in refusal(store)


def test_to_the_model_that_is_there_is_done_already(store):
    released(store, A)
    released(store, B, champion=A)
    way = Way(B, A)
    first = ask(store, way=way)
    assert isinstance(first, RolledBack)
    assert ask(store, way=way) == AlreadyBack(first.entry)
    assert len(read(store, PIPELINE)) == 5


def test_a_rollback_overtaken_by_a_release_moves_nothing_and_names_what_came_first(store):
    released(store, A)
    released(store, B, champion=A)
    way = Way(B, A)
    released(store, C, champion=B)
    moved = ask(store, way=way)
    assert isinstance(moved, Refused)
    assert "to replace bbbbbbbbbbbb in production" in moved.reasons[0]
    assert "cccccccccccc, by line 6 of me" in moved.reasons[0]
    assert champion(read(store, PIPELINE)) == C
