"""Real training under the real launcher, small: a set, a job, and the processes that train."""

import os
from pathlib import Path

import numpy as np
import polars as pl

from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.local.supervisor import descendants
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training import Mlp, TrainingSpec
from ml_assets_tests.worlds.shards import write_shards

STEPS = 60


def write_set(folder):
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
    return write_shards(splits, features, label, folder)


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


def ranks(root=None):
    """Processes below this one that train, in the order of their ranks."""
    return sorted(pid for pid in descendants(root or os.getpid()) if _is(pid, trains=True))


def torchruns():
    return sorted(pid for pid in descendants(os.getpid()) if _is(pid, trains=False))


def _is(pid, *, trains):
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        name = Path(f"/proc/{pid}/comm").read_text()
    except OSError:  # it ended while we looked
        return False
    ours = b"ml_assets.training" in command and b"supervisor.py" not in command
    torchrun = b"ml_assets.training.elastic" in command and not name.startswith("rank")
    return ours and torchrun != trains


def named(events, kind):
    return [event for event in events if event.kind == kind]


def by_number(events):
    """What two ranks say at one moment has no order."""
    return sorted(events, key=lambda event: (event.attempt, event.seq))


def numbered(events):
    """Each attempt's numbers in rank 0's own stream, as they came."""
    found = {}
    for event in events:
        if event.seq < 10_000_000:
            found.setdefault(event.attempt, []).append(event.seq)
    return found
