"""Pods that share nothing but the object store with their launcher: the program itself runs."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from ml_assets.assets.training_set.shards import load_schema
from ml_assets.launch.events import session_events
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.spec.ensemble import Distill
from ml_assets.spec.training_program.events import Failed, Progress
from ml_assets_tests.launch.real import STEPS, named, numbered, train_job
from ml_assets_tests.launch.staging.pods import Home, wait_for, weights
from ml_assets_tests.servers.s3 import SECRET
from ml_assets_tests.worlds.shards import shard_of

LONG = {"epochs": 2000, "evaluate_every": 50}
"""Steps enough to be still at it when it is told to stop, on any machine."""


@pytest.mark.daemon
def test_two_pods_train_the_weights_of_two_local_processes_bit_for_bit(
    home, data, undisturbed, bucket, tmp_path
):
    """And their store is away for a while."""
    mirror, uri = home.train(train_job(data))
    bucket.faults.at, bucket.faults.failing = "/attempts/1/events/", 12  # requests
    home.start(uri)
    assert [pod.code() for pod in home.pods] == [0, 0], home.pods[0].said()[-3000:]
    assert bucket.faults.failing == 0 and "events wait" in home.pods[0].said()
    elsewhere = Home(tmp_path / "elsewhere").mirror(mirror.folder.session)
    for one in (mirror, elsewhere):
        assert one.adopt() == (1,)
        result = one.folder.finished_training()
        assert result is not None and result.step == STEPS
        assert weights(Path(result.model.uri)) == weights(Path(undisturbed[1].model.uri))
    events = session_events(mirror.folder.root)
    assert events == session_events(elsewhere.folder.root)
    assert numbered(events)[1] == list(range(len(numbered(events)[1])))
    words = mirror.exits(1)
    assert {word.code for word in words} == {0}
    rows = sum(f.stat().st_size for f in shard_of(data, "train").glob("*.npy"))
    assert all(word.staged_bytes > rows > 0 for word in words), "each fetched its data"
    beats = [json.loads(f.read_text()) for f in mirror.folder.attempt(1).glob("heartbeat.*.json")]
    assert {beat["rank"] for beat in beats} == {0, 1}
    kept = [f.read_text() for f in mirror.folder.root.rglob("*.json*")]
    assert SECRET not in "".join([*kept, *(pod.said() for pod in home.pods)])


@pytest.mark.daemon
def test_a_pod_is_taught_by_the_model_that_was_published_for_it(home, data, undisturbed, tmp_path):
    teacher = undisturbed[1].model
    job = train_job(data, distill=Distill(teacher="release", weight=5.0))
    job = replace(job, teacher=teacher)
    here = LocalLauncher(tmp_path / "alone").train(job, [].append)
    assert weights(Path(here.model.uri)) != weights(Path(teacher.uri))
    mirror, uri = home.train(job)
    home.start(uri)
    assert [pod.code() for pod in home.pods] == [0, 0], home.pods[0].said()[-3000:]
    assert mirror.adopt() == (1,)
    result = mirror.folder.finished_training()
    assert result is not None
    assert weights(Path(result.model.uri)) == weights(Path(here.model.uri))


@pytest.mark.daemon
def test_a_notice_to_one_pod_ends_both_with_what_was_saved(home, data):
    mirror, uri = home.train(train_job(data, **LONG))
    first, second = home.start(uri)
    wait_for(lambda: mirror.pull(1) and checkpoints(mirror))
    second.process.send_signal(signal.SIGTERM)  # as when its node is taken away
    assert (second.code(), first.code()) == (75, 75), first.said()[-3000:]
    words = mirror.exits(1)
    assert {word.index: word.code for word in words} == {0: 75, 1: 75}
    assert all("saved at step" in word.reason for word in words)


@pytest.mark.daemon
def test_pods_without_room_for_the_set_train_the_same_weights_also_after_a_kill(
    home, data, tmp_path
):
    """Each holds a third of the training split and fetches its own rows as it comes to them."""
    blocks = {"order": "blocks", "block_rows": 12, "block_window": 2}
    job = train_job(data, **blocks, epochs=60, evaluate_every=50, patience=100)
    whole = LocalLauncher(tmp_path / "alone").train(job, [].append)
    mirror, uri = home.train(job)
    cache = 7 * 12 * 8  # blocks of rows of a number and a label
    first, second = home.start(uri, data_cache=cache)
    wait_for(lambda: mirror.pull(1) and checkpoints(mirror))
    for pod in (second, first):  # the launcher ends the other one
        pod.process.kill()
        assert pod.code() == -signal.SIGKILL
    mirror, uri = home.train(job, number=2)
    assert [pod.code() for pod in home.start(uri, data_cache=cache)] == [0, 0]
    assert mirror.adopt() == (1, 2)
    assert said(mirror, 2)[0].startswith("resumed at step ")
    result = mirror.folder.finished_training()
    assert weights(Path(result.model.uri)) == weights(Path(whole.model.uri))
    shard = load_schema(data).splits["train"][0].digest
    for pod in home.pods:
        assert not list(pod.scratch.rglob(f"{shard}/numeric.npy")), "the split is not on its disk"
    waits = [e.metrics for e in named(session_events(mirror.folder.root), "metrics")]
    assert all("fetch_wait_share" in told for told in waits)


@pytest.mark.daemon
def test_attempts_that_end_early_leave_what_they_saved_and_nothing_else_that_counts(home, data):
    """A notice, a kill, and a pod that comes after a newer attempt began."""
    job = train_job(data, processes=1, **LONG)
    mirror, uri = home.train(job, nodes=1)
    (told,) = home.start(uri, nodes=1)
    wait_for(lambda: mirror.pull(1) and checkpoints(mirror))
    told.process.send_signal(signal.SIGTERM)
    assert told.code() == 75, told.said()
    assert mirror.exits(1)[0].code == 75 and not mirror.collect(1)

    mirror, uri = home.train(job, number=2, nodes=1)
    (killed,) = home.start(uri, nodes=1)
    wait_for(lambda: mirror.pull(2) and said(mirror, 2))
    assert said(mirror, 2)[0].startswith("resumed at step ")
    rank = json.loads((killed.scratch / "attempt" / "heartbeat.0.json").read_text())["pid"]
    killed.process.kill()
    assert killed.code() == -signal.SIGKILL
    wait_for(lambda: not is_alive(rank))
    assert mirror.exits(2) == [] and not mirror.collect(2)

    mirror, _ = home.train(job, number=3, nodes=1)
    (late,) = home.start(uri, nodes=1)
    assert late.code() == 77 and "attempt 3 began" in late.said()
    assert mirror.adopt() == (1, 2, 3) and mirror.folder.finished_training() is None


def test_a_flipped_byte_of_the_data_is_refused_before_the_program_is_started(home, data, bucket):
    mirror, uri = home.train(train_job(data, processes=1), nodes=1)
    key = next(k for k in bucket.everything() if k.endswith("/numeric.npy"))
    bucket.flip(key)
    (pod,) = home.start(uri, nodes=1)
    assert pod.code() == 65, pod.said()
    assert mirror.exits(1)[0].code == 65 and "is damaged" in mirror.exits(1)[0].reason
    mirror.pull(1)
    (event,) = session_events(mirror.folder.root)
    assert isinstance(event, Failed) and event.exit_code == 65


def checkpoints(mirror):
    return named(session_events(mirror.folder.root), "checkpoint")


def said(mirror, attempt):
    found = session_events(mirror.folder.root)
    return [e.message for e in found if isinstance(e, Progress) and e.attempt == attempt]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
