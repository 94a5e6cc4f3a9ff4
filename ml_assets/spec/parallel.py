"""Memory, messages and axes of a network's step: what of them fits which network."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from ml_assets.spec.base import Misfit

if TYPE_CHECKING:  # it has fields of these types
    from ml_assets.spec.training import ModelSpec, TrainingSpec

ActivationCheckpointing = Literal["none", "block", "selective"]
_OF_BLOCKS = ("gpt", "module")
"""Families whose layers hold more than what comes in."""


def parallel_problems(training: "TrainingSpec", model: "ModelSpec") -> Iterator[Misfit]:
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


def _misfit(name: str, said: str) -> Misfit:
    return Misfit(("training", name), f"training.{name}: {said}")
