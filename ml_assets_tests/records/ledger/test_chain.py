"""The ledger: whole, in order, chained, and written by any number of processes at once."""

import hashlib
import json
import multiprocessing
from datetime import timedelta
from pathlib import Path

import pytest

from ml_assets.errors import DecidedMeanwhile, StorageError
from ml_assets.records.ledger import chain as ledger
from ml_assets.records.ledger.chain import read, record_decision, register
from ml_assets.records.ledger.stages import champion, latest_decision
from ml_assets.spec.base import canonical_json
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.open import open_snapshots
from ml_assets_tests.records.conftest import PIPELINE, A, B, C, decision, evidence, gate

FORK = multiprocessing.get_context("spawn")


def test_an_empty_ledger_has_no_lines_and_no_champion(store):
    assert read(store, PIPELINE) == ()
    assert champion(()) is None
    assert latest_decision((), A) is None


def test_lines_are_numbered_chained_and_stored_as_canonical_json(store, decide):
    first, second = decide(A), decide(B)

    stored = [store.read_bytes(store.resolve(), ledger.path_of(PIPELINE, n)) for n in (1, 2)]
    assert read(store, PIPELINE) == (first, second)
    assert (first.seq, second.seq) == (1, 2)
    assert first.previous is None
    assert second.previous == hashlib.sha256(stored[0]).hexdigest()
    assert stored == [canonical_json(first), canonical_json(second)]


def test_ledgers_of_two_pipelines_do_not_meet(store, decide):
    decide(A)
    assert read(store, "delay") == ()
    assert read(store, "other") == ()


def test_an_older_commit_shows_the_ledger_as_it_was(store, decide):
    before = store.resolve()
    first = decide(A)
    after = store.resolve()
    decide(B)
    assert read(store, PIPELINE, before) == ()
    assert read(store, PIPELINE, after) == (first,)


def test_the_same_decision_is_written_once(store):
    first = record_decision(store, decision(run="run-1"), "me")
    again = record_decision(store, decision(run="run-2"), "me")
    assert again == first
    assert len(read(store, PIPELINE)) == 1


def test_another_measurement_of_the_same_outcome_is_the_same_decision(store):
    slow, slower = (gate("latency", value=v, bound=None) for v in (1.0, 1.5))
    first = record_decision(store, decision(gates=(gate(), slow)), "me")
    assert record_decision(store, decision(gates=(gate(), slower)), "me") == first


@pytest.mark.parametrize(
    "other",
    [
        decision(gates=(gate(passed=False),)),
        decision(gates=(gate(), gate("size"))),
        decision(gates=(gate(bound=0.71),)),
        decision(evidence(champion=B)),
        decision(evidence(report="99" * 32)),
    ],
    ids=["outcome", "gates", "bound", "champion", "report"],
)
def test_a_decision_that_differs_is_another_line(store, other):
    record_decision(store, decision(), "me")
    assert record_decision(store, other, "me").seq == 2
    assert latest_decision(read(store, PIPELINE), A) == other


def test_a_decision_that_counts_those_before_it_is_not_written_after_one_that_it_did_not_count(
    store, decide
):
    before = store.resolve()
    ours, theirs = decide(A), decide(B)
    with pytest.raises(DecidedMeanwhile, match=f"model {A[:12]} was decided on while"):
        record_decision(store, decision(evidence(C)), "me", by=before)
    assert read(store, PIPELINE) == (ours, theirs)
    line = record_decision(store, decision(evidence(C)), "me", by=store.resolve())
    assert (line.seq, line.model) == (3, C)


def test_a_decision_that_changes_back_is_a_third_line(store):
    for said in (True, False, True):
        record_decision(store, decision(gates=(gate(passed=said),)), "me")
    assert [e.decision.passed for e in read(store, PIPELINE)] == [True, False, True]


def test_a_model_is_registered_once_and_before_all_else_about_it(store, decide):
    first = register(store, PIPELINE, A, "team", "run-1")
    assert (first.kind, first.model, first.author) == ("registration", A, "team")
    assert register(store, PIPELINE, A, "team", "run-2") == first
    line = decide(B)
    assert register(store, PIPELINE, B, "team", "run-3") == line, "it is known by its decision"
    assert [e.kind for e in read(store, PIPELINE)] == ["registration", "decision"]


def test_a_field_that_is_not_set_is_in_no_byte_of_a_line(store):
    line = (
        '{"author":"team","canary":"none","decision":null,"kind":"stage","model":"MODEL",'
        '"previous":null,"reason":"decision in line 1: fine","replaced":null,"run":"r",'
        '"schema_version":1,"seq":1,"stage":"production","time":"2026-01-02T03:04:05Z"}'
    )
    line = line.replace("MODEL", A).encode()
    overwrite(store, {1: line})
    (entry,) = read(store, PIPELINE)
    assert canonical_json(entry) == line
    assert (entry.because, entry.decided_by, entry.overrides, entry.gates) == (None, None, None, ())


# --- planted faults -------------------------------------------------------------------------------


def test_a_changed_line_is_named(store, decide):
    for model in (A, B, C):
        decide(model)
    body = json.loads(store.read_bytes(store.resolve(), ledger.path_of(PIPELINE, 2)))
    overwrite(store, {2: json.dumps({**body, "author": "somebody else"}).encode()})
    with pytest.raises(StorageError, match=r"broken at ledger/delays/000003\.json.*line before"):
        read(store, PIPELINE)


def test_a_removed_line_is_named(store, decide):
    for model in (A, B, C):
        decide(model)
    overwrite(store, {2: None})
    with pytest.raises(StorageError, match=r"line 2 .*000002\.json\) is expected, .*000003\.json"):
        read(store, PIPELINE)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seq": 7}, "number 7, 1 is next"),
        ({"previous": "00" * 32}, "the line before is nothing"),
        ({"decision": None}, "a decision line has a decision"),
        ({"kind": "stage"}, "a stage line has a stage"),
        ({"overrides": 1}, "an override line names the decision line"),
        ({"kind": "override", "decision": None}, "an override line names the decision line"),
        ({"because": "rollback"}, "only a move is a rollback"),
        ({"model": B}, "about another model"),
        ({"model": "short"}, "cannot be read"),
        ({"surprise": 1}, "cannot be read"),
    ],
)
def test_a_line_that_does_not_hold_together_is_refused(store, decide, change, said):
    body = json.loads(canonical_json(decide(A)))
    overwrite(store, {1: json.dumps({**body, **change}).encode()})
    with pytest.raises(StorageError, match=f"000001.json.*{said}"):
        read(store, PIPELINE)


def test_a_decision_of_another_pipeline_is_refused(store, decide):
    line = canonical_json(decide(A))
    overwrite(store, {1: line}, "others")
    with pytest.raises(StorageError, match="about another pipeline"):
        read(store, "others")


def test_a_stray_file_is_refused(store):
    with store.open(store.resolve(), "stray") as work:
        work.put_bytes(f"ledger/{PIPELINE}/notes.txt", b"hello")
        work.commit("stray", {})
        work.publish()
    with pytest.raises(StorageError, match=r"notes\.txt is not a line of a ledger"):
        read(store, PIPELINE)


def test_a_line_that_does_not_continue_the_head_is_not_written(store, decide):
    entry = decide(A)
    with pytest.raises(StorageError, match="number 1, 2 is next"):
        ledger.append(store, PIPELINE, lambda head: entry)
    assert len(read(store, PIPELINE)) == 1


# --- writers at once ------------------------------------------------------------------------------


def test_a_writer_that_was_overtaken_takes_the_next_number(store, decide):
    seen = []

    def make(head: ledger.Head):
        seen.append(head.seq)
        if len(seen) == 1:
            decide(B)
        return line_of(head, A)

    outcome = ledger.append(store, PIPELINE, make)
    assert isinstance(outcome, ledger.Appended)
    assert seen == [1, 2]
    assert [e.model for e in read(store, PIPELINE)] == [B, A]


def test_a_writer_that_never_wins_gives_up_and_says_so(store, monkeypatch):
    monkeypatch.setattr(ledger, "_ATTEMPTS", 3)

    def make(head: ledger.Head):
        record_decision(store, decision(evidence(f"{head.seq:064x}")), "me")
        return line_of(head, A)

    with pytest.raises(StorageError, match=r"No line could be added to .* in 3 attempts"):
        ledger.append(store, PIPELINE, make)


def test_a_clock_that_went_back_does_not_take_the_ledger_with_it(store, decide):
    first = decide(A)

    def make(head: ledger.Head):
        return line_of(head, B).model_copy(update={"time": first.time - timedelta(hours=1)})

    outcome = ledger.append(store, PIPELINE, make)
    assert isinstance(outcome, ledger.Appended)
    assert outcome.entry.time == read(store, PIPELINE)[1].time == first.time


def test_declining_writes_nothing(store, decide):
    decide(A)
    before = store.resolve()
    outcome = ledger.append(store, PIPELINE, lambda head: ledger.Declined("no"))
    assert outcome == ledger.Declined("no")
    assert store.resolve() == before


def test_processes_that_write_at_once_lose_no_line(store, tmp_path):
    folder, each = tmp_path / "snapshots", 4
    writers = [FORK.Process(target=write_many, args=(folder, w, each)) for w in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    entries = read(store, PIPELINE)
    assert sorted(e.model for e in entries) == sorted(
        model_of(w, i) for w in range(3) for i in range(4)
    )


def write_many(folder: Path, writer: int, count: int) -> None:
    store = open_snapshots(str(folder))
    for i in range(count):
        record_decision(store, decision(evidence(model_of(writer, i))), "me")


def model_of(writer, i):
    return f"{writer * 100 + i:064x}"


def line_of(head, model):
    said = decision(evidence(model))
    return LedgerEntry(
        seq=head.seq,
        previous=head.previous,
        kind="decision",
        model=model,
        decision=said,
        author="me",
        reason=said.reason,
        run="run",
        time=said.time,
    )


def overwrite(store, lines, pipeline=PIPELINE):
    with store.open(store.resolve(), f"fault-{sorted(lines)}") as work:
        for seq, content in lines.items():
            path = ledger.path_of(pipeline, seq)
            work.remove(path) if content is None else work.put_bytes(path, content)
        work.commit("fault", {})
        work.publish()
