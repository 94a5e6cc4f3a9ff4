"""A snapshot store, and decisions on models that tests spoil one field at a time."""

from datetime import UTC, datetime

import pytest

from ml_assets.assets.released_model.promote import Released, release
from ml_assets.records.ledger.chain import record_decision
from ml_assets.records.recall_files import write
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.spec.recalls import Recall
from ml_assets.spec.records import Decision, Evidence, GateResult, InputVersion
from ml_assets.store.open import open_snapshots

PIPELINE = "delays"
A, B, C = "aa" * 32, "bb" * 32, "cc" * 32


def evidence(model=A, champion=None, **moved):
    fields = {"report": "11" * 32, "data": "22" * 32, "code": "abc123", "policy": "33" * 32}
    return Evidence(model=model, champion=champion, **{**fields, **moved})


def gate(name="floor", passed=True, value=0.73, bound=0.7):
    reason = f"auc {value} against {bound}"
    return GateResult(name=name, passed=passed, value=value, bound=bound, reason=reason)


def decision(about=None, gates=None, passed=None, run="run-1"):
    gates = (gate(),) if gates is None else gates
    passed = all(g.passed for g in gates) if passed is None else passed
    return Decision(
        pipeline=PIPELINE,
        evidence=about or evidence(),
        gates=gates,
        passed=passed,
        reason="all gates passed" if passed else "refused",
        run=run,
        time=datetime.now(UTC),
    )


def released(store, model, champion=None, to="production"):
    """A model that was decided on against the champion, and moved; its line."""
    about = evidence(model, champion)
    record_decision(store, decision(about), "me")
    moved = release(store, PIPELINE, about, ReleaseSpec(to=to), author="me", run="run-2")
    assert isinstance(moved, Released), moved
    return moved.entry


def refused(store, model, champion=None, name="floor"):
    """A decision that refused a model; its line."""
    about = decision(evidence(model, champion), gates=(gate(name, passed=False), gate("size")))
    return record_decision(store, about, "me")


def recall(store, model, pipeline=PIPELINE):
    """Recall a model; what it was made from is not in this store."""
    seed = InputVersion(key=f"{pipeline}/trained_model", partition=None, version=model, commit=None)
    told = Recall(
        id=model[:12],
        snapshot=model[:12],
        seeds=(seed,),
        reached=(),
        stages=(),
        author="ann",
        reason="the scale was off",
        time=datetime.now(UTC),
    )
    write(store, told)
    return told


@pytest.fixture
def store(tmp_path):
    return open_snapshots(str(tmp_path / "snapshots"))


@pytest.fixture
def decide(store):
    """Write a passing decision on a model down."""

    def write(model=A, champion=None, **moved):
        return record_decision(store, decision(evidence(model, champion, **moved)), "me")

    return write
