"""The resume drill's verdict: it passes for equal weights after a kill that was survived, only."""

from datetime import UTC, datetime, timedelta

import pytest

from ml_assets.launch.drill import Killer, judged, short_job
from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.session_name import train_session
from ml_assets.spec.training import LightGbm, Mlp, TrainingSpec
from ml_assets.spec.training_program import File, ModelManifest, Preprocessing, Ref, TrainResult
from ml_assets.spec.training_program.events import Checkpoint, Progress

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DATA = Ref(uri="/data", digest="d" * 64)


def result(folder, weights):
    """A training whose model has these weights."""
    nothing = Preprocessing(numeric=(), null_flags=(), categorical=())
    manifest = ModelManifest(
        model=Mlp(family="mlp"),
        task="binary",
        classes=(),
        preprocessing=nothing,
        weights=File(path="weights.safetensors", size=1, sha256=weights * 64),
        step=40,
    )
    model = folder / weights
    model.mkdir(exist_ok=True)
    (model / "model.json").write_text(manifest.model_dump_json())
    return TrainResult(
        session="s",
        attempt=1,
        step=60,
        best_step=40,
        stopped="epochs",
        model=Ref(uri=str(model), digest="e" * 64),
        metrics={},
        seconds=1.0,
    )


def head(seconds):
    return {"session": "s", "attempt": 1, "seq": 0, "time": NOW + timedelta(seconds=seconds)}


@pytest.fixture
def survived(tmp_path):
    """A killer whose kill, at step 9, was survived for 4 seconds."""
    killer = Killer(lambda *_: True, step=9, rank=1)
    killer.killed = NOW
    for event in (
        Progress(**head(3), step=8, steps=60, message="resumed at step 8 of 60"),
        Checkpoint(**head(4), step=9, checkpoint=DATA, size=1, best=True, metrics={}),
    ):
        killer.follow(event)
    return killer


def test_equal_weights_after_a_kill_pass_with_the_seconds_it_took(survived, tmp_path):
    found = judged(result(tmp_path, "a"), result(tmp_path, "a"), survived)
    assert (found.passed, found.rank, found.step, found.seconds) == (True, 1, 9, 4.0)
    assert "Rank 1 was killed at step 9 of 60" in found.reason


def test_other_weights_do_not_pass_and_both_digests_are_told(survived, tmp_path):
    found = judged(result(tmp_path, "a"), result(tmp_path, "b"), survived)
    assert not found.passed
    assert "OTHER weights" in found.reason
    assert (found.undisturbed, found.resumed) == ("a" * 64, "b" * 64)


def test_a_training_that_does_not_come_back_does_not_pass(survived, tmp_path):
    found = judged(result(tmp_path, "a"), None, survived, "the disk is full")
    assert not found.passed
    assert "did not recover: the disk is full" in found.reason


def test_a_kill_that_came_too_late_proves_nothing(tmp_path):
    found = judged(result(tmp_path, "a"), result(tmp_path, "a"), Killer(tmp_path, step=9, rank=0))
    assert not found.passed
    assert "over before the kill" in found.reason


def test_a_drill_is_a_session_of_its_own_and_reaches_its_steps_for_every_family():
    network = TrainJob("demo", Mlp(family="mlp"), TrainingSpec(), DATA)
    trees = TrainJob("demo", LightGbm(family="lightgbm"), TrainingSpec(), DATA)
    for job in (network, trees):
        short = short_job(job, 60)
        assert train_session(short) != train_session(job)
        assert short.training.patience >= 60
        assert short.model == job.model
    assert short_job(network, 60).training.epochs >= 60
    assert short_job(trees, 60).training.epochs == TrainingSpec().epochs
