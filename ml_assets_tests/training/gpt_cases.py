"""python -m ml_assets_tests.training.gpt_cases REQUEST.json OUT.json, under torchrun.

Takes the first steps of a language model in many ways, one after the other in one group, as the
program takes them, and writes what came out.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from ml_assets.spec.program import TrainRequest
from ml_assets.spec.training import TrainingSpec
from ml_assets.training.distributed.ranks import join
from ml_assets.training.rows.arrays import open_set
from ml_assets.training.step import assemble, initial_network
from ml_assets_tests.training.strategy_cases import taken

STEPS = 3
MEMORY = ("none", "block", "selective")


def cases() -> dict[str, dict[str, Any]]:
    """What to change of the request's training."""
    found: dict[str, dict[str, Any]] = {}
    for strategy in ("replicate", "shard"):
        for precision in ("fp32", "bf16"):
            for mode in MEMORY:
                found[f"{strategy} {precision} {mode}"] = {
                    "strategy": strategy,
                    "precision": precision,
                    "activation_checkpointing": mode,
                }
    return found


def held_bytes(network: nn.Module, windows: torch.Tensor) -> int:
    """Bytes that a forward pass leaves for its backward pass: what was taken and not given back."""
    network(torch.zeros(len(windows), 0), windows, None).sum().backward()  # buffers are made
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        loss = network(torch.zeros(len(windows), 0), windows, None).sum()
    held = sum(event.self_cpu_memory_usage for event in seen.key_averages())
    loss.backward()
    return held


def main() -> None:
    """Take every case's steps; rank 0 writes what they came to."""
    source, target = sys.argv[1:]
    request = TrainRequest.model_validate_json(Path(source).read_bytes())
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    folder, schema = open_set(request.data)
    ranks = join()
    said: dict[str, Any] = {}
    for name, changes in cases().items():
        training = TrainingSpec(**{**request.training.model_dump(), **changes})
        asked = request.model_copy(update={"training": training})
        stepper = assemble(asked, initial_network(asked, schema)[0], folder, schema, ranks)
        said[name] = taken(stepper, 0, STEPS)
    if ranks.rank == 0:
        Path(target).write_text(json.dumps(said))


if __name__ == "__main__":
    main()
    os._exit(0)  # as the program itself ends: see ``leave``
