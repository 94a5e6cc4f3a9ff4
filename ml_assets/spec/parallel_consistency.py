"""Checks that memory, messages and axes of a step, as a spec has them, fit its network."""

from collections.abc import Iterator

from ml_assets.errors import counted
from ml_assets.spec.base import Misfit, training_misfit
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
            f"the layers of model.family {model.family!r} hold little but their inputs, so there "
            "is nothing to recompute: remove it, and lower training.batch_size and raise "
            "training.accumulate where memory is short"
        )
        yield training_misfit("activation_checkpointing", said)
    yield from _compiled(training, model)
    yield from _sent(training)
    if training.cpu_offload and training.strategy == "replicate":
        said = "replicate keeps everything on each process: set strategy to shard, or remove it"
        yield training_misfit("cpu_offload", said)
    if training.parallel.tensor > 1:
        yield from _tensor(training, model)


def _compiled(training: TrainingSpec, model: ModelSpec) -> Iterator[Misfit]:
    if not training.compile:
        return
    if not isinstance(model, Gpt):
        yield training_misfit(
            "compile",
            f"the blocks of model.family gpt are compiled; {model.family!r} has layers of one"
            " product each, or code that changes from step to step: remove it",
        )
    if training.activation_checkpointing == "selective":
        yield training_misfit(
            "activation_checkpointing",
            "a compiled block decides itself which products it keeps: set it to none or block,"
            " or remove training.compile",
        )


def _sent(training: TrainingSpec) -> Iterator[Misfit]:
    hook, low = training.communication_hook, training.gradient_precision == "bf16"
    alone = "one process sends no gradients: remove it, or set training.processes to 2 or more"
    if low and training.processes == 1:
        yield training_misfit("gradient_precision", alone)
    if hook is None:
        if training.communication_rank != type(training).model_fields["communication_rank"].default:
            said = "it belongs to powersgd: set training.communication_hook: powersgd, or remove it"
            yield training_misfit("communication_rank", said)
        return
    name = "communication_hook"
    if training.processes == 1:
        yield training_misfit(name, alone)
    if training.strategy != "replicate":
        said = (
            f"{hook} needs whole matrices, which strategy {training.strategy} cuts into shards: set"
            " strategy to replicate, or use gradient_precision: bf16 instead"
        )
        yield training_misfit(name, said)
    if training.precision == "fp16":
        said = (
            f"what {hook} has not sent yet has the scale of its step, and fp16 changes the scale:"
            " set precision to bf16 or fp32"
        )
        yield training_misfit(name, said)
    if low:
        yield training_misfit(name, f"{hook} sends in fp32: remove gradient_precision")


def _tensor(training: TrainingSpec, model: ModelSpec) -> Iterator[Misfit]:
    tensor, name = training.parallel.tensor, "parallel"
    if not isinstance(model, Gpt):
        yield training_misfit(
            name,
            f"tensor {tensor} divides the blocks of model.family gpt; this one is {model.family!r}:"
            " remove it, strategy: shard divides any network",
        )
    elif model.heads % tensor:
        yield training_misfit(
            name,
            f"tensor {tensor} does not divide the {counted(model.heads, 'head')} of the model: set"
            " a divisor",
        )
    if training.processes % tensor:
        yield training_misfit(
            name,
            f"tensor {tensor} must divide training.processes {training.processes}: set processes to"
            f" {tensor * max(1, training.processes // tensor)}",
        )
    if training.strategy != "shard":
        said = f"tensor {tensor} needs strategy: shard, this one is {training.strategy}"
        yield training_misfit(name, f"{said}: set strategy to shard")
    for other in ("compile", "cpu_offload"):
        if getattr(training, other):
            said = f"not with parallel.tensor {tensor}: remove one of the two"
            yield training_misfit(other, said)
