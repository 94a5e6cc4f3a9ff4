"""Release: refused without whole, fresh, passing evidence, whatever else happens at the time."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ml_assets.assets.released_model.promote import (
    AlreadyReleased,
    Refused,
    Released,
    Verified,
    release,
    verify,
)
from ml_assets.assets.released_model.tags import wrong_names
from ml_assets.errors import EvidenceError, StorageError
from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.records.ledger.stages import champion, stages
from ml_assets.records.recall_files import active, write
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.spec.recalls import recall_file
from ml_assets.store.embedded.store import EmbeddedStore, EmbeddedWorkspace
from ml_assets_tests.assets.released_model.promoting import ask, go_on, in_canary, judged, reasons
from ml_assets_tests.records.conftest import (
    PIPELINE,
    A,
    B,
    C,
    decision,
    evidence,
    gate,
    recall,
    released,
)
from ml_assets_tests.red_team.forging import point_main_at


def test_a_store_that_was_put_back_to_its_beginning_moves_no_model(store, tmp_path):
    """The ledger begins anew, with another first line; the name of its first release tells."""
    begin = store.resolve()
    released(store, A)
    there = store.resolve()
    point_main_at(tmp_path / "snapshots", begin)
    with pytest.raises(StorageError, match=r"put back to an earlier state.* Nothing was moved"):
        released(store, B)
    assert champion(read(store, PIPELINE)) is None
    assert len(wrong_names(store, PIPELINE)) == 1
    store.untag(f"{PIPELINE}-release-1")
    store.tag("other-release-1", there)  # the name of another pipeline's move tells as much
    with pytest.raises(StorageError, match=r"not in the history of main.* Nothing was moved"):
        released(store, C)


# --- verify ---------------------------------------------------------------------------------------


def test_a_passing_decision_on_this_evidence_is_verified(store, decide):
    decide(A)
    verified = verify(read(store, PIPELINE), evidence(A))
    assert isinstance(verified, Verified)
    assert verified.seq == 1


def test_a_model_without_a_decision_is_refused(store, decide):
    decide(B)
    assert "no decision on model aaaaaaaaaaaa" in reasons(
        verify(read(store, PIPELINE), evidence(A))
    )


@pytest.mark.parametrize(
    ("moved", "said"),
    [
        ({"report": "99" * 32}, "the evaluation report was 111111111111, it is 999999999999 now"),
        ({"data": "99" * 32}, "the training set was 222222222222, it is 999999999999 now"),
        ({"code": "def456"}, "the training code version was abc123, it is def456 now"),
        ({"policy": "99" * 32}, "the gate policy was 333333333333, it is 999999999999 now"),
        ({"champion": B}, "the champion it was compared with was none, it is bbbbbbbbbbbb now"),
    ],
)
def test_evidence_that_moved_is_named_with_both_values(store, decide, moved, said):
    decide(A)
    text = reasons(verify(read(store, PIPELINE), evidence(A).model_copy(update=moved)))
    assert said in text
    assert "ledger line 1" in text


def test_everything_that_moved_is_named_at_once(store, decide):
    decide(A)
    now = evidence(A, champion=B, report="99" * 32, data="98" * 32)
    outcome = verify(read(store, PIPELINE), now)
    assert isinstance(outcome, Refused)
    assert len(outcome.reasons) == 3


def test_a_failed_decision_is_refused_with_the_gate_that_failed(store):
    failed = gate("floor", passed=False, value=0.6)
    record_decision(store, decision(gates=(failed, gate("size"))), "me")
    assert "floor: auc 0.6 against 0.7" in reasons(verify(read(store, PIPELINE), evidence(A)))


@pytest.mark.parametrize(
    ("gates", "passed", "said"),
    [
        ((gate(passed=False),), True, "refused the model"),
        ((gate(),), False, "refused the model"),
        ((), True, "no gate"),
    ],
    ids=["passed over a failed gate", "refused over passing gates", "passed without gates"],
)
def test_a_decision_that_contradicts_its_gates_is_refused(store, gates, passed, said):
    record_decision(store, decision(gates=gates, passed=passed), "me")
    assert said in reasons(verify(read(store, PIPELINE), evidence(A)))


def test_only_the_newest_decision_counts(store):
    record_decision(store, decision(), "me")
    record_decision(store, decision(gates=(gate(passed=False),)), "me")
    assert isinstance(verify(read(store, PIPELINE), evidence(A)), Refused)


# --- release --------------------------------------------------------------------------------------


def test_a_verified_model_moves_and_the_line_says_what_it_replaced(store, decide):
    decide(A)
    first = ask(store, evidence(A))
    decide(B, champion=A)
    second = ask(store, lambda entries: evidence(B, champion=champion(entries)))

    assert isinstance(first, Released)
    assert isinstance(second, Released)
    assert (first.entry.replaced, second.entry.replaced) == (None, A)
    assert (second.entry.stage, second.entry.canary) == ("production", "none")
    assert second.entry.reason == "decision in line 3: all gates passed"
    assert stages(read(store, PIPELINE)) == {"production": B}


def test_a_refused_release_writes_nothing(store, decide):
    decide(A)
    before = store.resolve()
    assert isinstance(ask(store, evidence(B)), Refused)
    assert store.resolve() == before


def test_a_second_release_of_the_same_model_is_the_first_one(store, decide):
    decide(A)
    first = ask(store, evidence(A))
    again = ask(store, evidence(A))
    assert isinstance(first, Released)
    assert again == AlreadyReleased(first.entry)
    assert len(read(store, PIPELINE)) == 2


def test_a_release_killed_after_its_line_is_already_released_though_the_champion_moved(
    store, decide
):
    decide(A)
    ask(store, evidence(A))
    decide(B, champion=A)
    moved = ask(store, evidence(B, champion=A))
    again = ask(store, lambda entries: evidence(B, champion=champion(entries)))
    assert isinstance(moved, Released)
    assert again == AlreadyReleased(moved.entry)


def test_the_champion_itself_is_refused_when_its_evidence_no_longer_holds(store, decide):
    decide(A)
    ask(store, evidence(A))
    text = reasons(ask(store, evidence(A, policy="99" * 32)))
    assert "the gate policy was" in text
    assert "stays there: nothing was moved" in text


def test_a_model_decided_against_an_older_champion_is_refused(store, decide):
    decide(A)
    decide(B)
    ask(store, evidence(A))
    said = reasons(ask(store, evidence(B)))
    assert "compared with was none, it is aaaaaaaaaaaa now" in said
    assert "Evaluate again against the current champion" in said


def test_the_champion_is_taken_from_the_ledger_whatever_the_caller_says(store, decide):
    decide(A)
    ask(store, evidence(A))
    decide(B, champion=C)
    assert isinstance(ask(store, evidence(B, champion=C)), Refused)


def test_a_stage_has_a_champion_of_its_own(store, decide):
    decide(A)
    ask(store, evidence(A), to="staging")
    decide(B)
    assert isinstance(ask(store, evidence(B)), Released)
    assert stages(read(store, PIPELINE)) == {"staging": A, "production": B}


def test_evidence_that_cannot_be_put_together_stops_the_release(store, decide):
    decide(A)

    def broken(entries):
        raise EvidenceError("the report is about another model")

    with pytest.raises(EvidenceError):
        ask(store, broken)
    assert stages(read(store, PIPELINE)) == {}


def test_a_decision_by_no_champion_does_not_count_again_when_the_champion_is_recalled(
    store, decide
):
    decide(A)
    decide(B)
    ask(store, evidence(B))
    recall(store, B)
    said = reasons(ask(store, evidence(A)))
    assert "(ledger line 1) is stale: it compared the model with no champion, and line 3" in said
    decide(A)
    decide(A)
    moved = ask(store, evidence(A))
    assert isinstance(moved, Released)
    assert (moved.entry.seq, moved.entry.decided_by) == (5, 4)


def test_nor_does_a_canary_decision_by_no_champion(store):
    there = in_canary(store, A)
    moved = release(store, PIPELINE, evidence(B), ReleaseSpec(), "me", "run")
    assert isinstance(moved, Refused)
    record_decision(store, decision(evidence(B)), "me")
    assert isinstance(ask(store, evidence(B)), Released)
    recall(store, B)
    assert "it compared the model with no champion" in reasons(go_on(store, there))
    judged(store, there)
    assert isinstance(go_on(store, there), Released)


@pytest.mark.parametrize("grows", [False, True])
def test_a_recall_that_comes_or_grows_before_the_line_of_a_move_stops_it(
    store, decide, monkeypatch, grows
):
    decide(A)
    if grows:
        recall(store, C)
    begun = EmbeddedStore.open

    def late(self, base, run_key):
        monkeypatch.undo()
        if grows:
            (holding,) = active(store, store.resolve())
            more = holding.seeds[0].model_copy(update={"version": A})
            write(store, holding.model_copy(update={"reached": (more,)}))
        else:
            recall(store, A)
        return begun(self, base, run_key)

    monkeypatch.setattr(EmbeddedStore, "open", late)
    assert "is recalled by ann" in reasons(ask(store, evidence(A)))
    assert stages(read(store, PIPELINE)) == {}
    decide(B)
    assert isinstance(ask(store, evidence(B)), Released), "the recall is no news to it"


def test_moves_read_each_recall_once_and_put_none_of_them_again(store, monkeypatch):
    for number in range(10):
        recall(store, f"{number:012x}" + "0" * 52)
    recalls = {recall_file(one.id) for one in active(store, store.resolve())}
    touched = []

    def counted(owner, method, path_at):
        whole = getattr(owner, method)

        def call(*given, **named):
            touched.append(given[path_at])
            return whole(*given, **named)

        monkeypatch.setattr(owner, method, call)

    counted(EmbeddedStore, "read_bytes", 2)
    counted(EmbeddedWorkspace, "put_bytes", 1)
    for model, before in ((A, None), (B, A), (C, B)):
        released(store, model, before)
    assert len(recalls) == 10
    assert [path for path in touched if path in recalls] == []
    recall(store, "d" * 64)
    released(store, A, C)
    assert [path for path in touched if path in recalls] == [], "another one makes none of them new"


def meanwhile(happens, about):
    """Evidence about a model; the first time that it is asked for, something else happens."""
    asked = []

    def put_together(entries):
        asked.append(entries)
        if len(asked) == 1:
            happens()
        return about

    return put_together


def test_a_release_overtaken_by_another_is_decided_again_and_refused(store, decide):
    decide(A)
    decide(B)
    heads = []

    def overtaken(entries):
        heads.append(len(entries))
        if len(heads) == 1:
            assert isinstance(ask(store, evidence(A)), Released)
        return evidence(B)

    assert "it is aaaaaaaaaaaa now" in reasons(ask(store, overtaken))
    assert heads == [2, 3]
    assert champion(read(store, PIPELINE)) == A


def test_a_release_overtaken_by_a_decision_still_moves(store, decide):
    decide(A)
    outcome = ask(store, meanwhile(lambda: decide(C), evidence(A)))
    assert isinstance(outcome, Released)
    assert outcome.entry.seq == 3


def test_a_release_overtaken_by_a_refusal_of_its_model_is_refused(store, decide):
    decide(A)

    def refuse():
        record_decision(store, decision(gates=(gate(passed=False),)), "me")

    assert "refused the model" in reasons(ask(store, meanwhile(refuse, evidence(A))))


def test_of_releases_in_many_threads_one_wins_and_the_others_are_told_who(store, decide):
    models = [f"{n:064x}" for n in range(1, 7)]
    for model in models:
        decide(model)
    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(lambda model: ask(store, evidence(model)), models))
    winners = [o for o in outcomes if isinstance(o, Released)]
    assert len(winners) == 1
    losers = [reasons(o) for o in outcomes if o is not winners[0]]
    assert all(f"it is {winners[0].entry.model[:12]} now" in text for text in losers)
    assert champion(read(store, PIPELINE)) == winners[0].entry.model
