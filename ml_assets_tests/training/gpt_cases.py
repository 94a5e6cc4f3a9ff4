"""python -m ml_assets_tests.training.gpt_cases REQUEST.json OUT.json GROUP, under torchrun.

Takes the first steps of a language model in many ways, one after the other in one group, as the
program takes them, and writes what came out.
"""

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.profiler import ProfilerActivity, profile

from ml_assets.spec.training import TrainingSpec
from ml_assets.spec.training_program import TrainRequest
from ml_assets.training.distributed.ranks import join
from ml_assets.training.rows.arrays import open_set
from ml_assets.training.step import assemble, initial_network
from ml_assets_tests.training.strategy_cases import taken

STEPS, HALF = 20, 10
MEMORY = ("none", "block", "selective")
Cases = dict[str, dict[str, Any]]


def cases(group: str) -> Cases:
    """Name -> what to change of the request's training."""
    by: Cases = {"replicate": {"strategy": "replicate"}, "shard": {"strategy": "shard"}}
    tensor: dict[str, Any] = {"processes": 4, "strategy": "shard", "parallel": {"tensor": 2}}
    lower = {"fp32": {}, "bf16": {"precision": "bf16"}}
    match group:
        case "alone":
            return {"alone": by["replicate"]}
        case "memory":
            return {
                f"{strategy} {precision} {mode}": {**how, **low, "activation_checkpointing": mode}
                for strategy, how in by.items()
                for precision, low in lower.items()
                for mode in MEMORY
            } | {
                f"{strategy} sums": {**how, "gradient_precision": "bf16"}
                for strategy, how in by.items()
            }
        case "tensor":
            return {
                f"{precision} {mode}": {**tensor, **low, "activation_checkpointing": mode}
                for precision, low in lower.items()
                for mode in MEMORY
            }
        case _:
            raise ValueError(group)


def held_bytes(network: nn.Module, windows: torch.Tensor) -> int:
    """Bytes that a forward pass leaves for its backward pass: what was taken and not given back."""
    network(torch.zeros(len(windows), 0), windows, None).sum().backward()  # buffers are made
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        loss = network(torch.zeros(len(windows), 0), windows, None).sum()
    held = sum(event.self_cpu_memory_usage for event in seen.key_averages())
    loss.backward()
    return held


def main() -> None:
    """Take every case's steps; rank 0 writes what they came to, also after a resume half way."""
    source, target, group = sys.argv[1:]
    request = TrainRequest.model_validate_json(Path(source).read_bytes())
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    folder, schema = open_set(request.data)
    ranks = join()
    said: dict[str, Any] = {}
    for name, changes in cases(group).items():
        training = TrainingSpec(**{**request.training.model_dump(), **changes})
        asked = request.model_copy(update={"training": training})
        stepper = assemble(asked, initial_network(asked, schema)[0], folder, schema, ranks)
        steps = taken(stepper, 0, HALF)
        state = copy.deepcopy(get_state_dict(stepper.network, stepper.optimizer))
        again = assemble(asked, initial_network(asked, schema)[0], folder, schema, ranks)
        set_state_dict(
            again.network,
            again.optimizer,
            model_state_dict=state[0],
            optim_state_dict=state[1],
        )
        named = stepper.network.named_parameters()
        said[name] = {
            "steps": steps + taken(stepper, HALF, STEPS),
            "resumed": taken(again, HALF, STEPS),
            "shapes": {weight: list(of.shape) for weight, of in named},
        }
    if ranks.rank == 0:
        Path(target).write_text(json.dumps(said))


if __name__ == "__main__":
    main()
    os._exit(0)  # as the program itself ends: see ``leave``
