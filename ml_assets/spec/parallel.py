"""Memory, messages and axes of a network's step, as a spec names them."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ml_assets.spec.base import Frozen, Positive

ActivationCheckpointing = Annotated[
    Literal["none", "block", "selective"], Field(exclude_if=lambda value: value == "none")
]
GradientPrecision = Annotated[
    Literal["fp32", "bf16"], Field(exclude_if=lambda value: value == "fp32")
]
NOT_THERE = {
    "pipeline": "its stages wait for each other, and nothing here is too deep for shards: use"
    " strategy: shard, and tensor within a node",
    "sequence": "a window is whole on each process, and its logits are never held: use"
    " activation_checkpointing: block for long ones, and tensor",
    "expert": "no family has experts: use strategy: shard for a network that is larger",
    "zero1": "use shard, which divides the weights, too, and sends half as many bytes again; or"
    " replicate, where all of it fits",
    "zero2": "use shard, which divides the weights, too; or replicate, where all of it fits",
    "zero3": "it is called shard here",
}
"""Axis or strategy by a name that is known elsewhere -> why it is not there, and what is."""


class Parallel(Frozen):
    """Axes besides that of the rows, along which processes share one network."""

    tensor: Positive = 1
    """Processes that share each block of a language model: its heads, and the width of its layers.
    What is left of ``processes`` shards the network by ``strategy: shard``."""

    @model_validator(mode="before")
    @classmethod
    def _is_there(cls, raw: Any) -> Any:
        for name in raw if isinstance(raw, dict) else ():
            if name in NOT_THERE:
                raise ValueError(f"{name} parallelism is not there: {NOT_THERE[name]}")
        return raw

    def over(self, processes: int) -> "Parallel":
        """The same over so many processes; without axes where they cannot be laid."""
        return self if processes % self.tensor == 0 else Parallel()
