"""What a checkpoint costs training: python benchmarks/checkpoints.py [TURNS]

A network of 25 million parameters (300 MB of state with AdamW's), one process, the local disk. A
save that is waited for, and one that goes on beside the next steps, take turns; wall time. One
figure a line: NAME VALUE AIM holds|short.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from figures import tell
from generated import train_request, training_set

from ml_assets.spec.training import Mlp, TrainingSpec
from ml_assets.training.checkpoints.save import Checkpoints
from ml_assets.training.checkpoints.whole_checkpoints import CheckpointFiles
from ml_assets.training.distributed.ranks import join, leave
from ml_assets.training.events import EventWriter
from ml_assets.training.models.families import build
from ml_assets.training.optimization import make_optimizer
from ml_assets.training.rows.arrays import open_set
from ml_assets.training.trainer_state import TrainerState

EACH_IS = "the median of five turns"

MODEL = Mlp(family="mlp", width=2048, depth=7, dropout=0.0)
SPEC = TrainingSpec(batch_size=24, microbatches=24, strategy="replicate", keep_last=1)


def main() -> None:
    """Print each figure with its aim."""
    turns = int((sys.argv[1:] or ["5"])[0])
    with tempfile.TemporaryDirectory() as folder:
        waited, stalled = seconds(Path(folder), turns)
    print(f"synchronous_save_seconds {statistics.median(waited):.2f}")
    print(f"asynchronous_stall_seconds {statistics.median(stalled):.2f}")
    ratios = [stall / whole for stall, whole in zip(stalled, waited, strict=True)]
    tell("asynchronous_stall_to_synchronous", statistics.median(ratios), 0.15)


def seconds(folder: Path, turns: int) -> tuple[list[float], list[float]]:
    """Wall seconds of each save that is waited for, and of each stall."""
    data = training_set(1000, folder / "shards")
    _, schema = open_set(data)
    ranks = join()
    try:
        network = build(MODEL, schema.preprocessing, schema.task, schema.classes)
        optimizer = make_optimizer(network, SPEC)
        for parameter in network.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        request = train_request(folder, data, MODEL, SPEC)
        events = EventWriter(Path(request.output.events), "session", 1, 0)
        checkpoints = Checkpoints(
            CheckpointFiles(request, events, ranks.world), ranks, lambda: None
        )
        waited, stalled = [], []
        for turn in range(turns + 1):
            began = time.monotonic()
            checkpoints.save(network, optimizer, TrainerState(step=2 * turn), {})
            checkpoints.finish()
            waited.append(time.monotonic() - began)
            began = time.monotonic()
            checkpoints.save(network, optimizer, TrainerState(step=2 * turn + 1), {})
            stalled.append(time.monotonic() - began)
            checkpoints.finish()
        checkpoints.close()
        return waited[1:], stalled[1:]  # the first turn warms up
    finally:
        leave()


if __name__ == "__main__":
    main()
