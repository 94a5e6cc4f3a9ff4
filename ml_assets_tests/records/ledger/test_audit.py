"""The history checker: silent about what can have happened, and it names what cannot."""

from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ml_assets.actions.override import override
from ml_assets.assets.released_model.promote import Refused, promote, release
from ml_assets.assets.released_model.rollback import Way, append_rollback, way_back
from ml_assets.records.ledger.audit import problems
from ml_assets.records.ledger.chain import append, read, read_head, record_decision
from ml_assets.records.ledger.stages import champion, stages
from ml_assets.spec.gates import CanarySpec, ReleaseSpec
from ml_assets.spec.records import CanaryPeriod, LedgerEntry
from ml_assets.store.open import open_snapshots
from ml_assets_tests.records.conftest import (
    PIPELINE,
    A,
    B,
    C,
    decision,
    evidence,
    gate,
    refused,
    released,
)

CANARY = ReleaseSpec(canary=CanarySpec())


@pytest.fixture
def story(store):
    """A, then B; back to A; C, which its gates refused, by an override."""
    released(store, A)
    released(store, B, champion=A)
    append_rollback(store, PIPELINE, Way(B, A), ReleaseSpec(), "ada", "late")
    refused(store, C, champion=A)
    override(store, PIPELINE, C, "ada", "why not")
    release(store, PIPELINE, evidence(C, A), ReleaseSpec(), "me", "r")
    entries = read(store, PIPELINE)
    assert [e.kind[0] for e in entries] == list("dsdssdos")
    return entries


def test_what_the_commands_wrote_is_a_possible_story(story):
    assert problems(story) == ()


@pytest.mark.parametrize(
    ("line", "change", "said"),
    [
        (4, {"replaced": None}, "line 4: it replaces no model in production, where aaaaaaaaaaaa"),
        (4, {"replaced": C}, "line 4: it replaces cccccccccccc in production"),
        (4, {"model": C}, "line 4: no decision on model cccccccccccc comes before it"),
        (4, {"model": A}, "line 4: model aaaaaaaaaaaa is moved to production, where it was"),
        (4, {"decided_by": 1}, "line 4: it names decision line 1; the valid one then was line 3"),
        (5, {"model": C}, "line 5: it goes back to cccccccccccc, which never was released to"),
        (
            7,
            {"overrides": 3},
            "line 7: line 3, which it overrides, is not an earlier decision",
        ),
        (8, {"decided_by": 6}, "line 8: it names decision line 6; the valid one then was line 7"),
        (4, {"seq": 9}, "line 9: it is line number 4: a line is missing, or there twice"),
    ],
)
def test_a_planted_fault_is_named_with_its_line(story, line, change, said):
    spoiled = [e.model_copy(update=change) if e.seq == line else e for e in story]
    found = problems(spoiled)
    assert any(one.startswith(said) for one in found), found


def test_a_return_to_a_model_that_passed_and_was_never_released_is_found(store):
    released(store, A)
    record_decision(store, decision(evidence(B, A)), "me")
    line = read(store, PIPELINE)[1]
    back = line.model_copy(update={"seq": 4, "model": B, "replaced": A, "because": "rollback"})
    entries = [*read(store, PIPELINE), back]
    assert problems(entries) == (
        "line 4: it goes back to bbbbbbbbbbbb, which never was released to production",
    )


@pytest.mark.parametrize("lost", range(1, 8))
def test_a_lost_line_is_found_whichever_it_is(story, lost):
    assert problems([e for e in story if e.seq != lost])


def test_a_refused_model_in_production_without_an_override_is_found(story):
    without = [e for e in story if e.kind != "override"]
    renumbered = [e.model_copy(update={"seq": n}) for n, e in enumerate(without, 1)]
    assert any("the decision in line 6 refused model cccc" in one for one in problems(renumbered))


def test_a_move_by_a_decision_against_another_champion_is_found(story):
    line = story[2]
    assert line.decision
    other = line.decision.evidence.model_copy(update={"champion": C})
    stale = line.model_copy(
        update={"decision": line.decision.model_copy(update={"evidence": other})}
    )
    found = problems([*story[:2], stale, *story[3:]])
    assert any("compares with cccccccccccc, but aaaaaaaaaaaa was the champion" in o for o in found)


MODELS = [A, B, C]
STEP = st.tuples(
    st.sampled_from(["decide", "refuse", "release", "override", "back", "canary", "promote"]),
    st.sampled_from(MODELS),
    st.booleans(),
)


@given(st.booleans(), st.lists(STEP, max_size=14))
@settings(
    max_examples=25,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_whatever_is_asked_in_whatever_order_the_story_is_possible(tmp_path_factory, asks, steps):
    """The policy asks for canaries or not; every command is tried at any time."""
    store = open_snapshots(str(tmp_path_factory.mktemp("any")))
    policy = CANARY if asks else ReleaseSpec()
    for verb, model, fresh in steps:
        entries = read(store, PIPELINE)
        before = stages(entries)
        about = evidence(model, before.get("production") if fresh else None)
        outcome = take(store, verb, about, policy, model)
        after = stages(read(store, PIPELINE))
        assert isinstance(outcome, Refused) <= (before == after), "a refusal moves nothing"
        assert "production" in after or "production" not in before, "never without a champion"
        if asks and after.get("production") != before.get("production"):
            assert verb in ("promote", "back")
    assert problems(read(store, PIPELINE)) == ()


def take(store, verb, about, policy, model):
    period = CanaryPeriod(first="w1", last="w1", rows=9)
    verdict = {"gates": (gate(passed=verb != "refuse"),)}
    match verb:
        case "decide" | "refuse":
            return record_decision(store, decision(about, **verdict), "me")
        case "canary":
            said = decision(about).model_copy(update={"canary": period})
            return record_decision(store, said, "me")
        case "release":
            return release(store, PIPELINE, about, policy, "me", "r")
        case "promote":
            now = {"champion": champion(read(store, PIPELINE))}
            return promote(
                store, PIPELINE, lambda _: about.model_copy(update=now), policy, "me", "r"
            )
        case "override":
            known = [e for e in read(store, PIPELINE) if e.model == model]
            return override(store, PIPELINE, model, "ada", "r") if known else Refused(())
    way = way_back(read(store, PIPELINE), policy)
    if isinstance(way, Refused):
        return way
    return append_rollback(store, PIPELINE, way, policy, "ada", "r")


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (("recall",), ()),
        (("recall", "lift"), ("line 6: its decision compares with no model, but aaaaaaaaaaaa",)),
        ((), ("line 4: its decision compares with no model, but aaaaaaaaaaaa",)),
    ],
)
def test_a_champion_is_not_compared_with_while_it_is_recalled(store, said, found):
    released(store, A)
    for kind in said:
        append(store, PIPELINE, lambda head, kind=kind: line(head, kind, A))
    decided = record_decision(store, decision(evidence(B)), "me")
    head = read_head(store, PIPELINE, store.resolve())
    moved = line(head, "stage", B, stage="production", replaced=A, decided_by=decided.seq)
    problem = problems((*head.entries, moved))
    assert [one.split(" was")[0] for one in problem] == list(found)


def test_a_way_back_to_a_model_that_was_made_again_from_sound_data_is_possible(store):
    """No line tells of that: the rollback itself held the model to the recalls."""
    released(store, A)
    released(store, B, champion=A)
    append(store, PIPELINE, lambda head: line(head, "recall", A, reason="recall r1: x"))
    append_rollback(store, PIPELINE, Way(B, A), ReleaseSpec(), "ada", "late")
    assert problems(read(store, PIPELINE)) == ()


def test_a_model_is_recalled_as_long_as_one_of_its_recalls_holds(store):
    released(store, A)
    said = [("recall", "recall r1: x"), ("recall", "recall r2: y"), ("lift", "recall r1 lifted: z")]
    for kind, reason in said:
        append(store, PIPELINE, lambda head, k=kind, r=reason: line(head, k, A, reason=r))
    decided = record_decision(store, decision(evidence(B)), "me")
    head = read_head(store, PIPELINE, store.resolve())
    moved = line(head, "stage", B, stage="production", replaced=A, decided_by=decided.seq)
    assert problems((*head.entries, moved)) == (), "r2 holds: A was no champion"
    last = ("lift", "recall r2 lifted: z")
    lifted = line(head, last[0], A, reason=last[1])
    assert problems((*head.entries, lifted)) == ()


def line(head, kind, model, **more):
    return LedgerEntry(
        seq=head.seq,
        previous=head.previous,
        kind=kind,
        model=model,
        author="ada",
        run="",
        time=datetime.now(UTC),
        **{"reason": "the scale was off", **more},
    )
