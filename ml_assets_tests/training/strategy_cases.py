"""python -m ml_assets_tests.training.strategy_cases REQUEST.json OUT.json, under torchrun.

Takes the first steps of many trainings, one after the other in one group of processes, as the
program takes them, and writes what came out. A process costs seconds, a training here much less.
"""

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from ml_assets.spec.training import Mlp, ModelSpec, TrainingSpec
from ml_assets.spec.training_program import TrainRequest
from ml_assets.training.distributed.ranks import join
from ml_assets.training.distributed.strategies import powersgd_of
from ml_assets.training.rows.arrays import open_set
from ml_assets.training.step import Stepper, StopFlags, assemble, initial_network
from ml_assets.training.trainer_state import LossScale

STEPS, HALF = 6, 3
STRATEGIES = ("replicate", "shard", "hybrid")
OPTIMIZERS = ("adamw", "sgd", "nadam", "adafactor")
PRECISIONS = ("bf16", "fp16")
WIDE = Mlp(family="mlp", width=1024, depth=2)
"""Its second layer is large enough to be a unit of its own."""


def cases(alone: bool) -> dict[str, tuple[dict[str, Any], ModelSpec | None]]:
    """What to change of the request's training, and its model if it is another."""
    found: dict[str, tuple[dict[str, Any], ModelSpec | None]] = {}
    small = {"batch_size": 24, "microbatches": 12}
    for strategy in ("replicate",) if alone else STRATEGIES:
        of = {"strategy": strategy, "processes": 4}
        for optimizer in OPTIMIZERS:
            if optimizer != "adafactor" or strategy == "replicate":
                found[f"{optimizer} {strategy}"] = ({**of, "optimizer": optimizer}, None)
        for precision in PRECISIONS:
            found[f"{precision} {strategy}"] = ({**of, "precision": precision}, None)
        found[f"accumulated {strategy}"] = ({**of, **small, "accumulate": 4}, None)
        found[f"wide {strategy}"] = ({**of, **small, "precision": "bf16"}, WIDE)
    plain: dict[str, Any] = {"strategy": "replicate", "processes": 4}
    changed = {"noise": 0.1, "feature_dropout": 0.2, "mixup": 0.4}
    found["augmented"] = ({**plain, "augmentation": changed}, None)
    weighed = {"column": "x", "first": "high", "until": 1.0}
    found["weighed"] = ({**plain, "curriculum": weighed}, None)
    found["ahead"] = ({**plain, "prefetch": True, "max_steps": STEPS}, None)
    found["as ahead"] = ({**plain, "max_steps": STEPS}, None)
    if not alone:
        compressed = {"communication_hook": "powersgd", "communication_rank": 16}
        found["wide sums"] = ({**plain, **small}, WIDE)
        found["wide thin sums"] = ({**plain, **small, **compressed}, WIDE)
    found["accumulated at once"] = ({"batch_size": 96, "microbatches": 48}, None)
    return found


def taken(stepper: Stepper, first: int, last: int) -> list[tuple[str, str]]:
    """(loss, gradient norm) of the steps before ``last``, as hexadecimal floats."""
    scale: LossScale | None = None
    out: list[tuple[str, str]] = []
    for step in range(first, last):
        done = stepper.take(step, scale, lambda: StopFlags(notice=False, checkpoint_due=False))
        scale = done.loss_scale
        out.append((done.loss.hex(), done.grad_norm.hex()))
    return out


def main() -> None:
    """Take every case's steps; rank 0 writes what they came to, also after a resume half way."""
    source, target = sys.argv[1:]
    request = TrainRequest.model_validate_json(Path(source).read_bytes())
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    folder, schema = open_set(request.data)
    ranks = join()
    said: dict[str, Any] = {}
    for name, (changes, model) in cases(ranks.world == 1).items():
        training = TrainingSpec(**{**request.training.model_dump(), **changes})
        update = {"training": training, "model": model or request.model}
        asked = request.model_copy(update=update)
        stepper = assemble(asked, initial_network(asked, schema)[0], folder, schema, ranks)
        steps = taken(stepper, 0, HALF)
        state = copy.deepcopy(get_state_dict(stepper.network, stepper.optimizer))
        hook = powersgd_of(stepper.forward)
        unsent = copy.deepcopy(hook.state()) if hook else {}
        again = assemble(asked, initial_network(asked, schema)[0], folder, schema, ranks)
        set_state_dict(
            again.network,
            again.optimizer,
            model_state_dict=state[0],
            optim_state_dict=state[1],
        )
        if (hook := powersgd_of(again.forward)) is not None:
            hook.take(unsent)
        said[name] = {
            "steps": steps + taken(stepper, HALF, STEPS),
            "resumed": taken(again, HALF, STEPS),
            "names": sorted(state[0]),
            "optimizer_names": sorted(state[1]["state"]),
        }
    if ranks.rank == 0:
        Path(target).write_text(json.dumps(said))


if __name__ == "__main__":
    main()
    os._exit(0)  # as the program itself ends: see ``leave``
