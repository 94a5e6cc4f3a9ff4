"""Records and messages between processes: closed, typed, the same after a trip through JSON."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from ml_assets.spec.records import (
    Decision,
    Evidence,
    GateResult,
    LedgerEntry,
    Measured,
    StageRecord,
)
from ml_assets.spec.training_program import Request, Result, TrainRequest, TrainResult
from ml_assets.spec.training_program.events import Event, Finished

DIGEST = "ab" * 32
NOW = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)

DECISION = Decision(
    pipeline="returns",
    evidence=Evidence(
        model=DIGEST, report=DIGEST, data=DIGEST, code="c", policy=DIGEST, champion=None
    ),
    gates=(GateResult(name="quality", passed=True, value=0.7, bound=0.6, reason="0.7 >= 0.6"),),
    passed=True,
    reason="all gates passed",
    run="r",
    time=NOW,
)
RECORD: dict[str, Any] = {
    "key": "returns/feature_set",
    "partition": "2024-01-01",
    "run_key": DIGEST,
    "code_version": "c",
    "data_version": DIGEST,
    "rows": 3,
    "inputs": [{"key": "a/b", "partition": None, "version": "v", "commit": "k"}],
    "run": "r",
    "time": "2024-05-01T12:00:00Z",
}
REQUEST: dict[str, Any] = {
    "verb": "train",
    "session": "s",
    "attempt": 1,
    "model": {"family": "mlp"},
    "training": {},
    "data": {"uri": "shards", "digest": DIGEST},
    "resume": None,
    "output": {"checkpoints": "c", "model": "m", "events": "e", "result": "r"},
    "world": {"procs": 2},
}
RESULT: dict[str, Any] = {
    "verb": "train",
    "session": "s",
    "attempt": 1,
    "step": 10,
    "best_step": 5,
    "stopped": "patience",
    "model": {"uri": "m", "digest": DIGEST},
    "metrics": {"validation_loss": 0.5},
    "seconds": 1.5,
}


def test_a_stage_record_is_the_same_after_json() -> None:
    record = StageRecord.model_validate(RECORD)
    assert record.time == NOW
    assert StageRecord.model_validate_json(record.model_dump_json()) == record


def test_a_ledger_line_carries_its_decision_through_json() -> None:
    line = LedgerEntry(
        seq=1, previous=None, kind="decision", model=DIGEST, decision=DECISION, author="a",
        reason="r", run="r", time=NOW,
    )  # fmt: skip
    assert LedgerEntry.model_validate_json(line.model_dump_json()) == line


@pytest.mark.parametrize(
    "fault",
    [
        {"time": "2024-05-01T12:00:00"},  # naive
        {"run_key": "AB" * 32},
        {"run_key": "ab" * 31},
        {"rows": "3"},
        {"colour": "red"},
        {"schema_version": 2},
    ],
)
def test_a_wrong_record_is_refused(fault: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        StageRecord.model_validate({**RECORD, **fault})


def test_the_ledger_starts_at_one() -> None:
    line = {"previous": None, "kind": "stage", "model": DIGEST, "stage": "production"}
    said = {"author": "a", "reason": "r", "run": "r", "time": NOW}
    assert LedgerEntry.model_validate({**line, **said, "seq": 1}).seq == 1
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        LedgerEntry.model_validate({**line, **said, "seq": 0})


def test_a_request_is_told_by_its_verb() -> None:
    request = TypeAdapter(Request).validate_python(REQUEST)
    assert isinstance(request, TrainRequest)
    assert (request.world.nodes, request.world.procs, request.world.threads) == (1, 2, 1)
    assert TypeAdapter(Request).validate_json(request.model_dump_json()) == request


@pytest.mark.parametrize(
    "fault",
    [
        {"verb": "predict"},
        {"attempt": 0},
        {"resume": {"uri": "c", "digest": "short"}},
        {"world": {"procs": 0}},
        {"training": {"batch_size": 10, "microbatches": 3}},
    ],
)
def test_a_wrong_request_is_refused(fault: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Request).validate_python({**REQUEST, **fault})


def test_an_event_is_told_by_its_kind_and_holds_a_whole_result() -> None:
    result = TypeAdapter(Result).validate_python(RESULT)
    assert isinstance(result, TrainResult)
    event = Finished(session="s", attempt=1, seq=7, time=NOW, result=result)
    assert TypeAdapter(Event).validate_json(event.model_dump_json()) == event


@pytest.mark.parametrize(
    "fault", [{"kind": "applause"}, {"seq": -1}, {"v": 2}, {"time": "2024-05-01T12:00:00"}]
)
def test_a_wrong_event_is_refused(fault: dict[str, Any]) -> None:
    event = {"kind": "warning", "session": "s", "attempt": 1, "seq": 0, "time": NOW, "message": "m"}
    TypeAdapter(Event).validate_python(event)
    with pytest.raises(ValidationError):
        TypeAdapter(Event).validate_python({**event, **fault})


def test_a_number_that_is_none_is_refused_where_it_would_be_compared() -> None:
    with pytest.raises(ValidationError, match="finite number"):
        GateResult(name="g", passed=False, value=float("nan"), bound=0.5, reason="r")


def test_what_was_written_before_a_field_came_is_the_same_bytes_now() -> None:
    """A gate without an interval, a decision without its holdout: their digests stand."""
    written = DECISION.model_dump(mode="json")
    assert set(written["gates"][0]) == {"name", "passed", "value", "bound", "reason"}
    assert "holdout" not in written
    assert Decision.model_validate_json(DECISION.model_dump_json()) == DECISION
    measured = Measured(latency_ms=1.0, rows_per_second=2.0)
    assert set(measured.model_dump()) == {"latency_ms", "rows_per_second"}
