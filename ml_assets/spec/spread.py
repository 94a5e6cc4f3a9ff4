"""Whether memory, messages and axes of a step, as a spec has them, fit its network."""

from collections.abc import Iterator

from ml_assets.spec.base import Misfit
from ml_assets.spec.gpt import Gpt
from ml_assets.spec.training import ModelSpec, TrainingSpec

_OF_BLOCKS = ("gpt", "module")
"""Families whose layers hold more than what comes in."""


def parallel_problems(training: TrainingSpec, model: ModelSpec) -> Iterator[Misfit]:
    """Every field that has no meaning for a network, with what to do instead."""
    if model.family in ("lightgbm", "xgboost"):
        return  # which refuses every one of them
    if training.activation_checkpointing != "none" and model.family not in _OF_BLOCKS:
        said = (
            f"the layers of model.family {model.family!r} hold little but what comes in, there is"
            " nothing to compute again: remove it, and lower training.batch_size and raise"
            " training.accumulate where memory is short"
        )
        yield _misfit("activation_checkpointing", said)
    yield from _of_one(training)
    if training.parallel.tensor > 1:
        yield from _tensor(training, model)


def _of_one(training: TrainingSpec) -> Iterator[Misfit]:
    if training.gradient_precision == "bf16" and training.processes == 1:
        said = "one process sends no gradients: remove it, or set training.processes to 2 or more"
        yield _misfit("gradient_precision", said)


def _tensor(training: TrainingSpec, model: ModelSpec) -> Iterator[Misfit]:
    tensor, name = training.parallel.tensor, "parallel"
    if not isinstance(model, Gpt):
        yield _misfit(
            name,
            f"tensor {tensor} shares the blocks of model.family gpt; this one is {model.family!r}:"
            " remove it, strategy: shard divides any network",
        )
    elif model.heads % tensor:
        yield _misfit(
            name,
            f"tensor {tensor} does not divide the {model.heads} heads of the model: set a divisor",
        )
    if training.processes % tensor:
        yield _misfit(
            name,
            f"tensor {tensor} must divide training.processes {training.processes}: set processes to"
            f" {tensor * max(1, training.processes // tensor)}",
        )
    if training.strategy != "shard":
        said = f"tensor {tensor} goes with strategy: shard, this one is {training.strategy}"
        yield _misfit(name, f"{said}: set strategy to shard")


def _misfit(name: str, said: str) -> Misfit:
    return Misfit(("training", name), f"training.{name}: {said}")
