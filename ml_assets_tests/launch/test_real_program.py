"""The real torchrun and the real training program, small: what the stand-in promised holds."""

import os
import signal
import subprocess

import numpy as np
import polars as pl
import pytest

from ml_assets.dataset.shards import write_shards
from ml_assets.errors import TrainingFailed
from ml_assets.launch.launcher import ScoreJob, TrainJob
from ml_assets.launch.local import LocalLauncher
from ml_assets.launch.tether import descendants
from ml_assets.spec.pipeline import FeaturesSpec, LabelSpec
from ml_assets.spec.training import Mlp, TrainingSpec


@pytest.fixture
def training_set(tmp_path):
    generator = np.random.default_rng(0)
    x = generator.normal(size=480)
    frame = pl.DataFrame(
        {
            "id": np.arange(480),
            "decision_at": [0] * 480,
            "x": x,
            "late": x + generator.normal(size=480) > 0,
        }
    ).with_columns(pl.col("decision_at").cast(pl.Datetime("us", "UTC")))
    splits = {
        "train": frame[:240].lazy(),
        "validation": frame[240:360].lazy(),
        "holdout": frame[360:].lazy(),
    }
    features = FeaturesSpec.model_validate(
        {
            "function": "features.py:build",
            "key": ["id"],
            "decision_at": "decision_at",
            "numeric": ["x"],
        }
    )
    label = LabelSpec.model_validate({"column": "late", "task": "binary"})
    return write_shards(splits, features, label, tmp_path / "sets")


def train_job(data, **changes):
    asked = {
        "epochs": 6,
        "batch_size": 24,
        "microbatches": 4,
        "evaluate_every": 5,
        "patience": 50,
        "processes": 2,
        **changes,
    }
    return TrainJob("demo", Mlp(family="mlp", width=8), TrainingSpec(**asked), data)


def test_a_killed_rank_is_tried_again_resumes_and_ends_in_the_same_bits(tmp_path, training_set):
    job = train_job(training_set)
    undisturbed = LocalLauncher(tmp_path / "undisturbed").train(job, lambda _: None)
    launcher, events = LocalLauncher(tmp_path / "objects"), []
    killed = []

    def on_event(event):
        events.append(event)
        if event.kind == "checkpoint" and not killed:
            killed.extend(ranks())
            os.kill(killed[-1], signal.SIGKILL)

    result = launcher.train(job, on_event)
    assert len(killed) == 2
    assert (result.attempt, result.step) == (2, 60)
    assert "SIGKILL" in next(e.message for e in events if e.kind == "warning")
    assert any("resumed at step" in e.message for e in events if e.kind == "progress")
    assert result.model.digest == undisturbed.model.digest

    again = []
    assert launcher.train(job, again.append) == result
    assert again == events
    scored = launcher.score(ScoreJob("demo", result.model, training_set, "holdout"), again.append)
    assert scored.rows == 120


def test_a_reason_of_the_program_comes_through_torchrun(tmp_path, training_set):
    lost = training_set.model_copy(update={"uri": str(tmp_path / "nowhere")})
    with pytest.raises(TrainingFailed, match="nowhere") as caught:
        LocalLauncher(tmp_path / "objects").train(train_job(lost), lambda _: None)
    assert "Materialize that asset again" in str(caught.value)


def ranks():
    """Processes of this test that are ranks: the program, and not torchrun."""
    found = []
    for pid in descendants(os.getpid()):
        asked = subprocess.run(
            ["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True
        )
        if "ml_assets.training" in asked.stdout and "torch.distributed.run" not in asked.stdout:
            found.append(pid)
    return sorted(found)
