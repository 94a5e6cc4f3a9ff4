"""What many pods told is fetched side by side, once, in its order, whatever breaks between."""

import threading
from datetime import UTC, datetime

import pytest

from ml_assets.errors import StoreAway
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.staging import mirror as module
from ml_assets.launch.staging.mirror import SessionMirror
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training import Mlp
from ml_assets.spec.training_program import File, ModelManifest, Preprocessing, Ref, TrainResult
from ml_assets.spec.training_program.events import Heartbeat, heartbeat_file
from ml_assets.spec.training_program.pod import (
    MODEL,
    REQUEST,
    RESULT,
    PodHeartbeats,
    TerminationMessage,
    attempt_of,
    chunk_name,
    heartbeats_name,
    termination_name,
)
from ml_assets.store.objects import bytes_digest
from ml_assets.store.s3.client import S3Place, client

SESSION = "demo-train-0123456789abcdef0123"
PODS = 16
LINES = [f'{{"line": {number}}}\n'.encode() for number in range(PODS)]


@pytest.fixture
def objects(home):
    return home.objects


@pytest.fixture
def place(objects):
    """Where the pods of attempt 1 write; the attempt was begun."""
    found = objects.place.at(attempt_of(SESSION, 1))
    found.write(REQUEST, b"{}")
    return found


@pytest.fixture
def mirror(objects, monkeypatch):
    monkeypatch.setattr(module, "_BETWEEN_LOOKS", 0.0)
    return SessionMirror(SessionFolder(objects.path("sessions", SESSION)), objects)


@pytest.fixture
def together(monkeypatch):
    """Each read of what has this in its name ends only once so many are under way."""

    def together(part):
        barrier, read = threading.Barrier(PODS), S3Place.read

        def met(self, name):
            if part in name:
                barrier.wait(60)
            return read(self, name)

        monkeypatch.setattr(S3Place, "read", met)

    return together


def tell(place, file="events.jsonl"):
    offset = 0
    for line in LINES:
        place.write(chunk_name(file, offset), line)
        offset += len(line)


def events(mirror, file="events.jsonl"):
    return (mirror.folder.attempt(1) / file).read_bytes()


def beat(place, index, step):
    now = datetime.now(UTC)
    own = Heartbeat(
        attempt=1, generation=0, rank=index, pid=1, host="x", step=step, time=now, patience=30
    )
    place.write(heartbeats_name(index), canonical_json(PodHeartbeats(beats=(own,))))


def step_of(mirror, rank):
    read = heartbeat_file(mirror.folder.attempt(1), rank).read_bytes()
    return Heartbeat.model_validate_json(read).step


def say(place, index, code):
    word = TerminationMessage(
        session=SESSION,
        attempt=1,
        index=index,
        host=f"pod-{index}",
        code=code,
        reason="done",
        log="",
        time=datetime.now(UTC),
    )
    place.write(termination_name(index), canonical_json(word))


def read_at(bucket, folder, since=0):
    """Objects that were asked for, each by itself, since so many requests."""
    asked = bucket.faults.requests[since:]
    return [path for method, path in asked if method == "GET" and f"/1/{folder}" in path]


def test_a_long_stream_is_fetched_side_by_side_and_appended_in_its_order(place, mirror, together):
    tell(place)
    together("events/events.jsonl/")
    assert mirror.pull(1) == len(b"".join(LINES))
    assert events(mirror) == b"".join(LINES)
    assert mirror.pull(1) == 0


def test_streams_of_many_ranks_are_fetched_side_by_side(place, mirror, together):
    for rank, line in enumerate(LINES):
        place.write(chunk_name(f"events.rank{rank}.jsonl", 0), line)
    together("events/events.rank")
    mirror.pull(1)
    assert [events(mirror, f"events.rank{rank}.jsonl") for rank in range(PODS)] == LINES


def test_what_breaks_off_is_a_beginning_and_goes_on_from_there(place, objects, mirror, bucket):
    tell(place)
    whole, third = b"".join(LINES), chunk_name("events.jsonl", len(LINES[0]) * 2)
    hasty = SessionMirror(mirror.folder, objects, client(tries=1))
    bucket.faults.at, bucket.faults.failing = third, -1
    with pytest.raises(StoreAway):
        hasty.pull(1)
    assert events(mirror) == whole[: len(LINES[0]) * 2]
    bucket.faults.failing = 0
    mirror.folder.attempt(1).joinpath("events.jsonl").write_bytes(whole[:20])  # a kill cut it
    assert hasty.pull(1) == len(whole) - 20
    assert events(mirror) == whole


def test_signs_of_life_are_read_side_by_side_and_those_alone_that_are_new(
    place, mirror, bucket, together, monkeypatch
):
    read = S3Place.read
    for index in range(PODS):
        beat(place, index, 1)
    together("heartbeats/")
    mirror.pull(1)
    began = len(bucket.faults.requests)
    mirror.pull(1)
    assert read_at(bucket, "heartbeats/", began) == []
    assert step_of(mirror, PODS - 1) == 1
    monkeypatch.setattr(S3Place, "read", read)
    for step in (2, 3):  # within the same second
        beat(place, 0, step)
        mirror.pull(1)
        assert step_of(mirror, 0) == step


def test_last_words_are_read_side_by_side_and_again_only_where_they_changed(
    place, mirror, bucket, together, monkeypatch
):
    for index in range(PODS):
        say(place, index, 75)
    read = S3Place.read
    together("exit/")
    assert len(mirror.exits(1)) == PODS
    monkeypatch.setattr(S3Place, "read", read)
    say(place, 3, 0)  # its Job was suspended and resumed
    began = len(bucket.faults.requests)
    assert {word.index for word in mirror.exits(1) if word.code == 0} == {3}
    assert len(read_at(bucket, "exit/", began)) == 1


def finish(place):
    """What pods leave of a training: a model of a few weights, and the result that names it."""
    weights = b"weights"
    file = File(path="weights.safetensors", size=len(weights), sha256=bytes_digest(weights))
    columns = Preprocessing(numeric=(), null_flags=(), categorical=())
    model = canonical_json(
        ModelManifest(
            model=Mlp(family="mlp"),
            task="binary",
            classes=(),
            preprocessing=columns,
            weights=file,
            step=1,
        )
    )
    result = TrainResult(
        session=SESSION,
        attempt=1,
        step=1,
        best_step=1,
        stopped="epochs",
        model=Ref(uri=f"{place.uri}/{MODEL}", digest=bytes_digest(model)),
        metrics={},
        seconds=1.0,
    )
    place.write(f"{MODEL}/{file.path}", weights)
    place.write(f"{MODEL}/model.json", model)
    place.write(RESULT, canonical_json(result))


def test_a_model_that_is_here_is_fetched_again_only_where_it_is_damaged(place, mirror, bucket):
    finish(place)
    weights = mirror.folder.model / "weights.safetensors"
    mirror.adopt()
    inode, began = weights.stat().st_ino, len(bucket.faults.requests)
    mirror.adopt()
    assert read_at(bucket, f"{MODEL}/weights", began) == []
    assert weights.stat().st_ino == inode
    weights.write_bytes(b"damaged")
    mirror.adopt()
    assert weights.read_bytes() == b"weights"
