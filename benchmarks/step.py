"""A step of the program against a bare PyTorch loop: python benchmarks/step.py [TURNS]

The same network, batch, loss, clipping and optimizer; one process, one thread. The same against a
loop of Accelerate's, where it is installed, with a loader that takes whole batches. Then a language
model on two processes, the bare loop with torch's own replicas. The two take turns of a few steps
each, so that a busy machine slows both alike; CPU time, the median of the seven turns' ratios. One
figure a line: NAME VALUE AIM holds|short.
"""

import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import peers
import torch
from figures import tell
from generated import train_request, training_set
from input import Batch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from ml_assets.spec.gpt import Gpt
from ml_assets.spec.parallel import Strategy
from ml_assets.spec.training import Mlp, TrainingSpec
from ml_assets.spec.training_program import Ref, ShardSchema, TrainRequest
from ml_assets.training.distributed.ranks import Ranks, join, leave
from ml_assets.training.models.families import fresh_network
from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets.training.rows.batches import Batches
from ml_assets.training.rows.tokens import split_arrays
from ml_assets.training.step import StopFlags, assemble, initial_network
from ml_assets_tests.training.texts import text_set

PEERS = ("accelerate",)
EACH_IS = "the median of seven turns, of five where it is a wait"
ENCODES = "Ours encodes rows as it reads them, and looks for losses that are not finite."
ROWS = 60_000
BATCH = 960
MODEL = Mlp(family="mlp", width=512, depth=6, dropout=0.1)
"""About a tenth of a second a step on one core."""
STEPS_PER_TURN = 4
LANGUAGE = Gpt.model_validate({"family": "gpt", "preset": "1m"})
AIMS: dict[int, dict[Strategy, float]] = {
    1: {"replicate": 1.05, "shard": 1.25},
    2: {"replicate": 1.05, "shard": 1.2},
}
"""Processes -> strategy -> the most that a step may take of a bare one."""
CONTEXT, WINDOWS = 256, 16
"""Half a second a step on two cores."""

TakeStep = Callable[[int], object]


def main() -> None:
    """Print each figure with its aim."""
    turns = int((sys.argv[1:] or ["7"])[0])
    torch.set_num_threads(1)
    ranks = join()
    with tempfile.TemporaryDirectory() as folder:
        data = training_set(ROWS, Path(folder))
        _, schema = open_set(data)
        arrays = SplitArrays(Path(data.uri), schema, "train")
        try:
            bare = bare_loop(arrays)
            for strategy, aim in AIMS[1].items():
                spec = TrainingSpec(
                    batch_size=BATCH, microbatches=24, strategy=strategy, processes=1
                )
                request = train_request(Path(folder), data, MODEL, spec)
                ours = program(request, schema, ranks)
                tell(f"step_{strategy}_to_bare", ratio(ours, bare, turns), aim)
            print(f"bare_step_ms {1000 * cpu_seconds(bare):.0f}")
            tell("data_wait_percent", 100 * share_of_data(arrays, bare), 1)
            in_peer(turns, data)
        finally:
            leave()
        texts = text_set(Path(folder) / "texts", 1600, CONTEXT)
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        asked = [__file__, str(turns), texts.uri, texts.digest]
        logs = f"--log-dir={folder}/ranks"
        subprocess.run([sys.executable, *torchrun, logs, *asked], check=True)


def in_peer(turns: int, data: Ref) -> None:
    """Go on in Accelerate's environment, after whose packages are those of this one."""
    if python := peers.python("accelerate"):
        asked = [python, __file__, str(turns), data.uri, data.digest]
        subprocess.run(asked, check=True, env={**os.environ, **peers.beside()})
    else:
        print(f"goes on without {peers.lack('accelerate')}")


def beside_accelerate(turns: int, data: Ref) -> None:
    """Our step against a loop of Accelerate's."""
    torch.set_num_threads(1)
    ranks = join()
    folder, schema = open_set(data)
    spec = TrainingSpec(batch_size=BATCH, microbatches=24, strategy="replicate", processes=1)
    request = train_request(folder.parent / "out", data, MODEL, spec)
    theirs = accelerate_loop(SplitArrays(folder, schema, "train"))
    found = ratio(program(request, schema, ranks), theirs, turns)
    tell("step_to_accelerate", found, 1.05, why=ENCODES)


def of_two(turns: int, data: Ref) -> None:
    """The language model, as one of two processes."""
    torch.set_num_threads(1)
    ranks = join()
    folder, schema = open_set(data)
    bare = bare_replica(folder, schema, ranks)
    for strategy, aim in AIMS[2].items():
        spec = language_spec(strategy)
        request = train_request(folder.parent / "out", data, LANGUAGE, spec)
        found = ratio(program(request, schema, ranks), bare, turns)
        if ranks.rank == 0:
            tell(f"language_step_{strategy}_to_bare", found, aim)


def language_spec(strategy: Strategy) -> TrainingSpec:
    return TrainingSpec(batch_size=WINDOWS, microbatches=WINDOWS, strategy=strategy, epochs=100)


def bare_replica(folder: Path, schema: ShardSchema, ranks: Ranks) -> TakeStep:
    """The same network by hand: torch's DistributedDataParallel, windows in memory, a loop."""
    whole = split_arrays(folder, schema, "train")
    windows = torch.from_numpy(whole.take_units(np.arange(whole.units)).categorical)
    network = fresh_network(LANGUAGE, 0, schema)
    replica = DistributedDataParallel(network, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-3)
    order, none = torch.randperm(len(windows)), torch.zeros(WINDOWS // 2, 0)

    def take(step: int) -> float:
        begin = step * WINDOWS + ranks.rank * WINDOWS // 2
        chosen = windows[order[begin : begin + WINDOWS // 2]]
        loss = replica(none, chosen, None).sum() / (len(chosen) * CONTEXT)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return take


def ratio(ours: TakeStep, bare: TakeStep, turns: int) -> float:
    """CPU time of ours over bare: the median of turns taken one after the other."""
    cpu_seconds(ours), cpu_seconds(bare)  # both warm
    return statistics.median(cpu_seconds(ours) / cpu_seconds(bare) for _ in range(turns))


def cpu_seconds(take: TakeStep) -> float:
    """Of one step, the mean of a turn."""
    began = time.process_time()
    for step in range(STEPS_PER_TURN):
        take(step)
    return (time.process_time() - began) / STEPS_PER_TURN


def share_of_data(arrays: SplitArrays, bare: TakeStep) -> float:
    """What reading a batch takes of a bare step; the median of turns, for reclaimed memory."""
    batches = Batches(arrays, seed=0, batch_size=BATCH, microbatches=24)
    read = [
        cpu_seconds(lambda step, first=turn * STEPS_PER_TURN: batches.share(first + step, 0, 1))
        for turn in range(5)
    ]
    return statistics.median(read) / cpu_seconds(bare)


def program(request: TrainRequest, schema: ShardSchema, ranks: Ranks) -> TakeStep:
    """Steps as the program takes them."""
    stepper = assemble(
        request, initial_network(request, schema)[0], Path(request.data.uri), schema, ranks
    )
    return lambda step: stepper.take(step, None, lambda: StopFlags(False, False))


def bare_loop(arrays: SplitArrays) -> TakeStep:
    """What one writes by hand: arrays in memory, a shuffled index, a module, a loop."""
    numeric, categorical, label = tensors(arrays)
    network, optimizer = bare_network(numeric, categorical)
    order = torch.randperm(len(label))

    def take(step: int) -> float:
        chosen = order[step * BATCH : (step + 1) * BATCH]
        logits = network(numeric[chosen], categorical[chosen])
        loss = binary_cross_entropy_with_logits(logits, label[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return take


def accelerate_loop(arrays: SplitArrays) -> TakeStep:
    """The same by Accelerate, as its docs have it, on the fastest loader of ``input.py``."""
    accelerate: Any = importlib.import_module("accelerate")
    network, optimizer = bare_network(*tensors(arrays)[:2])
    accelerator = accelerate.Accelerator(cpu=True)
    rows = Batch(arrays)
    loader = DataLoader(rows, BATCH, shuffle=True, drop_last=True, collate_fn=lambda taken: taken)
    network, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    endless = chain.from_iterable(repeat(loader))

    def take(step: int) -> float:
        numeric, categorical, label = next(endless)
        loss = binary_cross_entropy_with_logits(network(numeric, categorical), label)
        optimizer.zero_grad()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return take


def tensors(arrays: SplitArrays) -> list[torch.Tensor]:
    """All numbers, categories and labels, in memory."""
    rows = arrays.whole()
    parts = (rows.numeric, rows.categorical, rows.label)
    return [torch.from_numpy(np.ascontiguousarray(part)) for part in parts]


def bare_network(
    numeric: torch.Tensor, categorical: torch.Tensor
) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    network = BareMlp(numeric.shape[1], [int(c.max()) + 1 for c in categorical.T])
    return network, torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-3)


class BareMlp(nn.Module):
    """The same layers, written for this table alone."""

    def __init__(self, numeric: int, cardinalities: list[int]) -> None:
        super().__init__()
        width = MODEL.embedding_limit
        self.tables = nn.ModuleList(nn.Embedding(size, width) for size in cardinalities)
        layers: list[nn.Module] = []
        inputs = numeric + width * len(cardinalities)
        for _ in range(MODEL.depth):
            layers += [nn.Linear(inputs, MODEL.width), nn.ReLU(), nn.Dropout(MODEL.dropout)]
            inputs = MODEL.width
        self.layers = nn.Sequential(*layers, nn.Linear(inputs, 1))

    def forward(self, numeric: torch.Tensor, categorical: torch.Tensor) -> torch.Tensor:
        embedded = [table(categorical[:, column]) for column, table in enumerate(self.tables)]
        return self.layers(torch.cat([numeric, *embedded], dim=1))[:, 0]


if __name__ == "__main__":
    if len(sys.argv) > 2:
        take_turns = of_two if "RANK" in os.environ else beside_accelerate
        take_turns(int(sys.argv[1]), Ref(uri=sys.argv[2], digest=sys.argv[3]))
        sys.stdout.flush()
        os._exit(0)  # as the program itself ends: see ``leave``
    main()
