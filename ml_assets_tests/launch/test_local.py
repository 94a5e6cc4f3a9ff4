"""Create or adopt: a session asked for again is the same result, whoever asks and whatever died."""

import base64
import json
import os
import shutil
import signal
import threading

import pytest

from ml_assets.errors import TrainingFailed, TrainingInterrupted
from ml_assets.launch.launcher import ScoreJob
from ml_assets.launch.local.process import environment
from ml_assets.launch.session_folder import sign_result
from ml_assets.launch.session_name import score_session
from ml_assets.spec.training_program import Ref
from ml_assets.store.signing import Keys


def test_a_new_session_is_run_and_all_its_events_are_passed_on_once(stage):
    result = stage.train()
    assert (result.step, result.attempt, stage.attempts) == (3, 1, ["1"])
    assert stage.kinds() == ["metrics", "checkpoint"] * 3 + ["result"]


def test_a_finished_session_returns_without_a_process_and_replays_its_events(stage):
    first, events = stage.train(), list(stage.events)
    stage.plan(attempts={"*": {"at": 1, "exit": 70}})  # a process would fail
    stage.events.clear()
    assert stage.train() == first
    assert stage.events == events
    assert stage.attempts == ["1"]


@pytest.mark.parametrize("name", ["weights.safetensors", "model.json"])
def test_a_finished_session_with_a_flipped_byte_in_its_model_is_exported_again(stage, name):
    first = stage.train()
    path = stage.session / "model" / name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    second = stage.train()
    assert (second.attempt, second.model.digest) == (2, first.model.digest)
    assert request(stage, 2)["resume"]["uri"].endswith("step-000003.a1")


def test_a_half_written_result_is_no_result(stage):
    stage.train()
    path = stage.session / "attempts/1/result.json"
    path.write_bytes(path.read_bytes()[:-20])
    assert stage.train().attempt == 2


def test_an_interrupted_session_resumes_from_its_newest_whole_checkpoint(stage):
    stage.plan(steps=4, attempts={"1": {"at": 2, "exit": 70, "reason": "a bug"}})
    with pytest.raises(TrainingFailed):
        stage.train()
    stage.events.clear()
    assert stage.train().attempt == 2
    assert request(stage, 2)["resume"]["uri"].endswith("step-000002.a1")
    # who comes later has the whole story, the earlier attempt's part first
    steps = [(e.attempt, e.step) for e in stage.events if e.kind == "metrics"]
    assert steps == [(1, 1), (1, 2), (2, 3), (2, 4)]


def _cut(folder):
    manifest = folder / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:30])


def _flip(folder):
    manifest = folder / "manifest.json"
    manifest.write_bytes(b"[" + manifest.read_bytes()[1:])


def _no_manifest(folder):
    (folder / "manifest.json").unlink()


def _lost_file(folder):
    (folder / "state.bin").unlink()


def _short_file(folder):
    (folder / "state.bin").write_bytes(b"")


def _of_another_session(folder):
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "session": "another"}))


def test_checkpoints_that_are_not_whole_are_passed_by_for_the_one_before(stage):
    damages = (_cut, _flip, _no_manifest, _lost_file, _short_file, _of_another_session)
    stage.plan(steps=7, attempts={"1": {"at": 7, "exit": 70, "reason": "a bug"}})
    with pytest.raises(TrainingFailed):
        stage.train()
    for step, damage in enumerate(damages, 2):
        damage(stage.session / f"checkpoints/step-{step:06}.a1")
    # the stand-in never writes a checkpoint twice, so attempt 2 makes its own second one
    assert stage.train().attempt == 2
    assert request(stage, 2)["resume"]["uri"].endswith("step-000001.a1")


def test_checkpoints_are_ordered_by_their_step_not_by_their_name(stage):
    stage.plan(steps=2, attempts={"1": {"at": 2, "exit": 70, "reason": "a bug"}})
    with pytest.raises(TrainingFailed):
        stage.train()
    folder = stage.session / "checkpoints"
    (folder / "step-000001.a1").rename(folder / "step-999999.a1")
    stage.train()
    assert request(stage, 2)["resume"]["uri"].endswith("step-000002.a1")


def test_a_crash_is_tried_again_within_the_budget_and_said(stage):
    stage.plan(steps=4, attempts={"1": {"at": 1, "signal": 9}, "2": {"at": 2, "signal": 11}})
    assert stage.train().attempt == 3
    warnings = [event for event in stage.events if event.kind == "warning"]
    assert [w.attempt for w in warnings] == [1, 2]
    assert "SIGKILL" in warnings[0].message and "out of memory" in warnings[0].message
    assert "SIGSEGV" in warnings[1].message
    assert len({(e.attempt, e.seq) for e in stage.events}) == len(stage.events)


def test_a_crash_that_goes_on_ends_when_the_budget_is_spent(stage):
    stage.plan(steps=9, attempts={"*": {"at": 1, "signal": 9}})
    for number in ("2", "3"):  # each resumes one step on: make them crash there as well
        plan = json.loads(stage.plan_file.read_text())
        plan["attempts"][number] = {"at": int(number), "signal": 9}
        stage.plan(**plan)
    with pytest.raises(TrainingFailed, match="SIGKILL"):
        stage.train()
    assert stage.attempts == ["1", "2", "3"]


@pytest.mark.parametrize("code", [64, 65, 66, 70])
def test_what_running_again_would_repeat_is_not_tried_again(stage, code):
    stage.plan(attempts={"1": {"at": 2, "exit": code, "reason": "the loss is nan"}})
    with pytest.raises(TrainingFailed, match=r"demo: attempt 1 of session (.|\n)*the loss is nan"):
        stage.train()
    assert stage.attempts == ["1"]
    assert stage.kinds()[-1] == "error"


def test_a_child_that_fails_without_a_word_is_told_with_the_end_of_its_log(stage):
    stage.plan(attempts={"1": {"at": 1, "log": True, "exit": 3}})
    with pytest.raises(TrainingFailed) as caught:
        stage.train()
    text = str(caught.value)
    assert "exit code 3" in text and "log line 99" in text and "log line 79" not in text
    assert str(stage.session / "attempts/1/log.txt") in text


def test_a_crash_after_the_result_was_written_loses_nothing(stage):
    stage.plan(attempts={"1": {"at": "end", "signal": 11}})
    assert stage.train().attempt == 1


def test_the_end_without_a_result_is_no_success(stage):
    stage.plan(attempts={"1": {"at": 1, "exit": 0}})
    with pytest.raises(TrainingFailed, match="exit code 0"):
        stage.train()


def test_a_notice_to_the_program_is_an_interruption_and_the_next_run_resumes(stage, until):
    pids = stage.folder / "pids"
    stage.plan(attempts={"1": {"at": 2, "grandchild": str(pids), "hang": True}})
    noticed = threading.Thread(
        target=lambda: os.kill(json.loads(until(lambda: read(pids)))[0], signal.SIGTERM)
    )
    noticed.start()
    with pytest.raises(TrainingInterrupted, match="saved at step 2"):
        stage.train()
    noticed.join()
    assert stage.attempts == ["1"]
    assert stage.train().attempt == 2


def test_events_that_were_written_twice_are_passed_on_once(stage):
    stage.plan(attempts={"1": {"twice": True, "at": "never"}})
    stage.train()
    lines = (stage.session / "attempts/1/events.jsonl").read_text().splitlines()
    assert len(lines) == 2 * len(stage.events) == 14


def test_the_program_gets_the_threads_and_no_secret(stage, monkeypatch):
    seen = stage.folder / "environment.json"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:hush@host")
    stage.plan(attempts={"1": {"at": 1, "environment": str(seen)}})
    stage.train(changes={"threads": 2})
    environment = json.loads(seen.read_text())
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert "hush" not in json.dumps(environment)


def test_the_way_to_s3_is_passed_on_with_its_keys_and_not_without():
    way = {"https_proxy": "http://proxy:3128", "NO_PROXY": "10.0.0.0/8", "SSL_CERT_FILE": "/ca"}
    assert way.items() <= environment(1, way, s3=True).items()
    assert not way.keys() & environment(1, way).keys()


def test_the_folder_says_to_a_human_what_it_is(stage):
    stage.train()
    record = json.loads((stage.session / "session.json").read_text())
    assert (record["pipeline"], record["verb"], record["pid"]) == ("demo", "train", os.getpid())
    assert record["started"].endswith("+00:00")


def test_predictions_are_scored_once_and_again_when_they_are_damaged(stage):
    launcher = stage.launcher()
    ref = Ref(uri="/model", digest="e" * 64)
    job = ScoreJob("demo", ref, ref, "holdout")
    first = launcher.score(job, stage.events.append)
    assert launcher.score(job, stage.events.append) == first
    assert stage.kinds() == ["result", "result"]
    (stage.session / "predictions.npy").write_bytes(b"9.9")
    assert launcher.score(job, stage.events.append).attempt == 2


@pytest.mark.parametrize("whose", ["nobody's", "somebody else's", "of another result"])
def test_with_a_key_a_score_that_our_launcher_did_not_see_end_is_no_result(
    stage, whose, monkeypatch
):
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", base64.b64encode(bytes([1]) * 32).decode())
    launcher, ref = stage.launcher(), Ref(uri="/model", digest="e" * 64)
    job = ScoreJob("demo", ref, ref, "holdout")
    first = launcher.score(job, stage.events.append)
    result = stage.session / "attempts/1/result.json"
    signed = result.with_suffix(".signature.json")
    if whose == "nobody's":
        signed.unlink()
    elif whose == "somebody else's":
        key = base64.b64encode(bytes(32)).decode()
        sign_result(result, Keys.of(key))
    else:
        planted = json.loads(result.read_bytes()) | {"latency_ms": 0.001}
        result.write_text(json.dumps(planted))
    again = launcher.score(job, stage.events.append)
    assert (first.attempt, again.attempt) == (1, 2)
    assert launcher.score(job, stage.events.append) == again


def test_without_a_key_a_result_counts_as_it_lies_there_unless_somebody_signed_it(stage):
    launcher, ref = stage.launcher(), Ref(uri="/model", digest="e" * 64)
    job = ScoreJob("demo", ref, ref, "holdout")
    launcher.score(job, stage.events.append)
    result = stage.session / "attempts/1/result.json"
    assert not result.with_suffix(".signature.json").exists()
    assert launcher.score(job, stage.events.append).attempt == 1
    sign_result(result, Keys.of(base64.b64encode(bytes(32)).decode()))
    assert launcher.score(job, stage.events.append).attempt == 2


def test_a_signed_result_of_another_session_is_no_result_of_this_one(stage):
    launcher, ref = stage.launcher(), Ref(uri="/model", digest="e" * 64)
    launcher.score(ScoreJob("demo", ref, ref, "holdout"), stage.events.append)
    theirs = stage.session
    better = Ref(uri="/model", digest="f" * 64)
    ours = theirs.with_name(score_session(ScoreJob("demo", better, ref, "holdout")))
    shutil.copytree(theirs, ours)
    assert launcher.score(ScoreJob("demo", better, ref, "holdout"), lambda _: None).attempt == 2


def request(stage, attempt):
    return json.loads((stage.session / f"attempts/{attempt}/request.json").read_text())


def read(path):
    return path.read_text() if path.exists() else ""
