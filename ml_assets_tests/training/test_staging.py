"""What a pod does around the program: events carried, results handed over, patience."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ml_assets.errors import StoreAway, StoreRefuses
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import File, Ref, ScoreOutput, ScoreRequest, ScoreResult, World
from ml_assets.spec.training_program.events import Progress
from ml_assets.store.objects import bytes_digest
from ml_assets.store.retries import Deadline, persist
from ml_assets.store.s3.client import S3Place, client
from ml_assets.training.staging.outbox import Outbox, pause
from ml_assets.training.staging.transfer import deliver
from ml_assets.training.stop import Superseded
from ml_assets_tests.servers.s3 import BUCKET, S3Server

URI = f"s3://{BUCKET}/p/sessions/demo-score-1/attempts/1"


@pytest.fixture
def place(bucket: S3Server) -> S3Place:
    return S3Place(URI, client(tries=1))


def line(number: int) -> bytes:
    event = Progress(
        session="s", attempt=1, seq=number, time=datetime.now(UTC), step=1, steps=2, message="x"
    )
    return event.model_dump_json().encode() + b"\n"


def stream(place: S3Place) -> bytes:
    items = place.items("events/events.jsonl/")
    return b"".join(place.read(item.name) or b"" for item in items)


def test_half_a_line_waits_and_what_is_sent_twice_is_there_once(
    tmp_path: Path, place: S3Place
) -> None:
    file, first, second = tmp_path / "events.jsonl", line(0), line(1)
    file.write_bytes(first + second[:20])
    outbox = Outbox(tmp_path, place, 0)
    outbox.end(Deadline())
    assert stream(place) == first
    file.write_bytes(first + second)
    outbox.end(Deadline())
    outbox.end(Deadline())
    assert stream(place) == first + second


def test_a_pod_that_begins_again_goes_on_in_the_same_stream(tmp_path: Path, place: S3Place) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    (first / "events.jsonl").write_bytes(line(0) + line(1))
    Outbox(first, place, 0).end(Deadline())
    outbox = Outbox(second, place, 0)
    outbox.begin(Deadline())
    assert (second / "events.jsonl").read_bytes() == (first / "events.jsonl").read_bytes()
    with (second / "events.jsonl").open("ab") as handle:
        handle.write(line(2))
    outbox.end(Deadline())
    assert stream(place) == (second / "events.jsonl").read_bytes()
    assert outbox.failed == []


def test_of_two_live_pods_of_one_index_one_tells_the_story(tmp_path: Path, place: S3Place) -> None:
    pods = []
    for name in ("one", "twin"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.jsonl").write_bytes(line(0) if name == "one" else line(7))
        pods.append(Outbox(tmp_path / name, place, 0))
    pods[0].end(Deadline())
    with pytest.raises(Superseded, match="another pod with index 0"):
        pods[1].end(Deadline())
    assert pods[1].superseded is not None
    assert stream(place) == (tmp_path / "one" / "events.jsonl").read_bytes()


def test_a_chunk_whose_answer_was_lost_is_sent_again_as_it_was(
    tmp_path: Path, place: S3Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, write = tmp_path / "events.jsonl", S3Place.write_new
    file.write_bytes(line(0))
    outbox = Outbox(tmp_path, place, 0)

    def lost(self: S3Place, name: str, data: bytes) -> bool:
        write(self, name, data)
        with file.open("ab") as handle:  # the program goes on meanwhile
            handle.write(line(1))
        monkeypatch.setattr(S3Place, "write_new", write)
        raise StoreAway("the answer did not come")

    monkeypatch.setattr(S3Place, "write_new", lost)
    outbox.end(Deadline())
    assert outbox.superseded is None
    assert stream(place) == file.read_bytes()


def test_events_are_carried_every_second_at_first_and_every_ten_of_a_long_training() -> None:
    assert [pause(age) for age in (0, 300, 1800, 3600, 86_400)] == [1, 1, 5, 10, 10]


# --- handing over ---------------------------------------------------------------------------------


def scored(folder: Path) -> ScoreRequest:
    content = b"0.5"
    (folder / "predictions.npy").write_bytes(content)
    made = File(
        path=str(folder / "predictions.npy"), size=len(content), sha256=bytes_digest(content)
    )
    result = ScoreResult(
        session="demo-score-1",
        attempt=1,
        predictions=made,
        rows=1,
        latency_ms=1.0,
        rows_per_second=1.0,
    )
    (folder / "result.json").write_bytes(canonical_json(result))
    ref = Ref(uri="x", digest="0" * 64)
    output = ScoreOutput(
        predictions=made.path, events=str(folder / "e"), result=str(folder / "result.json")
    )
    return ScoreRequest(
        session="demo-score-1",
        attempt=1,
        model=ref,
        data=ref,
        split="holdout",
        output=output,
        world=World(),
    )


def test_the_result_comes_last_and_names_what_lies_beside_it(
    tmp_path: Path, place: S3Place, bucket: S3Server
) -> None:
    request = scored(tmp_path)
    assert deliver(request, place, Deadline()) and deliver(request, place, Deadline())
    puts = [path for method, path in bucket.faults.requests if method == "PUT" and "/p/" in path]
    assert "predictions.npy" in puts[0] and "result.json" in puts[1]
    told = json.loads(place.read("result.json") or b"")
    assert told["predictions"]["path"] == "predictions.npy"


def test_nothing_is_handed_over_once_a_newer_attempt_began(tmp_path: Path, place: S3Place) -> None:
    place.elsewhere(f"{URI[:-1]}2").write("request.json", b"{}")
    with pytest.raises(Superseded, match="attempt 2 began"):
        deliver(scored(tmp_path), place, Deadline())
    assert list(place.items()) == []


def test_a_store_that_comes_back_is_asked_until_then_and_one_that_refuses_only_once(
    tmp_path: Path, place: S3Place, bucket: S3Server
) -> None:
    bucket.faults.failing = 3
    assert deliver(scored(tmp_path), place, Deadline())
    asked = []

    def refused() -> None:
        asked.append(1)
        raise StoreRefuses("no")

    with pytest.raises(StoreRefuses):
        persist(refused, Deadline())
    assert len(asked) == 1


def test_a_deadline_ends_the_asking(bucket: S3Server, place: S3Place) -> None:
    bucket.faults.failing = -1
    deadline = Deadline()
    deadline.within(0.5)
    with pytest.raises(StoreAway):
        persist(lambda: place.read("x"), deadline)
    assert time.monotonic() >= deadline.at
