"""The flights' model on a GPU, widened until the card is busy: python benchmarks/gpu.py

At each width, steps of the program take turns with a plain loop of the same network on the same
rows; then the stall of an asynchronous checkpoint, and memory. One figure a line: NAME VALUE AIM
holds|short. Keep the output with date and versions under benchmarks/results/.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from figures import tell
from generated import train_request, training_set
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from ml_assets.spec.program import Ref, ShardSchema
from ml_assets.spec.training import TabM, TrainingSpec
from ml_assets.training.checkpoints.files import CheckpointFiles
from ml_assets.training.checkpoints.save import Checkpoints
from ml_assets.training.distributed.ranks import Ranks, join, leave
from ml_assets.training.events import EventWriter
from ml_assets.training.optimization import make_optimizer
from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets.training.rows.batches import Batches
from ml_assets.training.step import Stepper, StopFlags, assemble, initial_network
from ml_assets.training.telemetry import gpu_utilization_pct
from ml_assets.training.trainer_state import TrainerState

NEEDS = ("gpu",)

ROWS = 400_000
WIDTHS = (128, 512, 2048, 4096, 8192)
BUSY_PCT = 90.0
SPEC = TrainingSpec(
    batch_size=12_288, microbatches=24, strategy="replicate", processes=1, precision="bf16"
)
STEPS, TURNS = 10, 5

TakeStep = Callable[[int], object]


def main() -> None:
    """Print the figures of each width, until the card is busy."""
    if not torch.cuda.is_available():
        sys.exit("no GPU here: torch.cuda.is_available() is False")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    ranks = join()
    try:
        with tempfile.TemporaryDirectory() as folder:
            data = training_set(ROWS, Path(folder) / "shards")
            for width in WIDTHS:
                if at_width(width, Path(folder) / str(width), data, ranks) >= BUSY_PCT:
                    break
    finally:
        leave()


def at_width(width: int, folder: Path, data: Ref, ranks: Ranks) -> float:
    """Print the figures of one width; how busy the card was, in percent."""
    model = TabM(family="tabm", width=width, depth=2, members=12, dropout=0.0)
    request = train_request(folder, data, model, SPEC)
    _, schema = open_set(data)
    network, _ = initial_network(request, schema)
    stepper = assemble(request, network, Path(data.uri), schema, ranks)
    plain = plain_loop(request.data, schema, initial_network(request, schema)[0], ranks)
    torch.cuda.reset_peak_memory_stats()

    def ours(step: int) -> object:
        return stepper.take(step, None, lambda: StopFlags(False, False))

    seconds(ours), seconds(plain)  # both warm
    ratios = [seconds(ours) / seconds(plain) for _ in range(TURNS)]
    took = seconds(ours)
    uuid = str(torch.cuda.get_device_properties(ranks.device).uuid)
    busy = gpu_utilization_pct(uuid) or 0.0
    print(f"width_{width}_rows_per_second {SPEC.batch_size / took:,.0f}")
    print(f"width_{width}_gpu_utilization_pct {busy:.0f}")
    print(f"width_{width}_gpu_memory_peak_mb {torch.cuda.max_memory_allocated() / 1e6:,.0f}")
    tell(f"width_{width}_step_to_plain", statistics.median(ratios), 1.05)
    events = EventWriter(folder / "events.jsonl", "session", 1, 0)
    checkpoints = Checkpoints(CheckpointFiles(request, events, ranks.world), ranks, lambda: None)
    tell(f"width_{width}_stall_to_save", stall(checkpoints, stepper), 0.15)
    return busy


def seconds(take: TakeStep) -> float:
    """Wall time of one step, the mean of some; the card has finished them."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for step in range(STEPS):
        take(step)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / STEPS


def plain_loop(data: Ref, schema: ShardSchema, network: nn.Module, ranks: Ranks) -> TakeStep:
    """What one writes by hand: autocast, fused AdamW, no look at the loss."""
    network = network.to(ranks.device)
    optimizer = make_optimizer(network, SPEC)  # pyright: ignore[reportArgumentType]
    arrays = SplitArrays(Path(data.uri), schema, "train")
    batches = Batches(arrays, SPEC.seed, SPEC.batch_size, SPEC.microbatches)

    def take(step: int) -> None:
        rows, _, _ = batches.share(step, 0, 1)
        there = rows.to(ranks.device)
        with torch.autocast("cuda", torch.bfloat16):
            logits = network(there.numeric, there.categorical, None)[..., 0]
        target = there.label[:, None].expand_as(logits)
        loss = binary_cross_entropy_with_logits(logits.float(), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), SPEC.clip_norm)
        optimizer.step()

    return take


def stall(checkpoints: Checkpoints, stepper: Stepper) -> float:
    """How long training stands still for a save, of what the whole save takes; the median."""
    found: list[float] = []
    for turn in range(4):
        began = time.perf_counter()
        checkpoints.save(stepper.network, stepper.optimizer, TrainerState(step=turn), {})
        stood = time.perf_counter() - began
        checkpoints.finish()
        found.append(stood / (time.perf_counter() - began))
    checkpoints.close()
    return statistics.median(found[1:])  # the first one warms up


if __name__ == "__main__":
    main()
