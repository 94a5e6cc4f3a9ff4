"""Models on their way to production: asked for, judged, in canary."""

from ml_assets.assets.released_model.promote import Refused, Released, promote, release
from ml_assets.records.ledger.chain import record_decision
from ml_assets.spec.gates import CanarySpec, ReleaseSpec
from ml_assets.spec.records import CanaryPeriod
from ml_assets_tests.records.conftest import PIPELINE, A, decision, evidence, gate


def ask(store, about, to="production"):
    return release(store, PIPELINE, about, ReleaseSpec(to=to), author="me", run="run-9")


def reasons(outcome):
    assert isinstance(outcome, Refused), outcome
    return " ".join(outcome.reasons)


CANARY = ReleaseSpec(canary=CanarySpec())
WEEK = CanaryPeriod(first="w1", last="w1", rows=90)


def in_canary(store, model=A, champion=None, passed=True):
    """A model that its gates led to canary, where it was decided on; the evidence there."""
    about = evidence(model, champion)
    record_decision(store, decision(about), "me")
    moved = release(store, PIPELINE, about, CANARY, "me", "run")
    assert isinstance(moved, Released)
    there = evidence(model, champion, report="c1" * 32, data="c2" * 32, code="canary")
    judged(store, there, passed)
    return there


def judged(store, about, passed=True):
    said = decision(about, gates=(gate("champion", passed=passed),))
    return record_decision(store, said.model_copy(update={"canary": WEEK}), "me")


def go_on(store, about):
    return promote(store, PIPELINE, lambda _: about, CANARY, author="me", run="run-9")
