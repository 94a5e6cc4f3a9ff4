"""Memory, messages and axes of a network's step, as a spec names them."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from ml_assets.spec.base import Frozen, Positive, unset

ActivationCheckpointing = Annotated[
    Literal["none", "block", "selective"], Field(exclude_if=lambda value: value == "none")
]
GradientPrecision = Annotated[
    Literal["fp32", "bf16"], Field(exclude_if=lambda value: value == "fp32")
]
NOT_THERE = {
    "pipeline": "its stages would wait for each other, and shards are enough for these "
    "networks: use strategy: shard, and tensor within a node",
    "sequence": "a window is whole on each process, and its logits are never held: use"
    " activation_checkpointing: block for long ones, and tensor",
    "expert": "no family has experts: use strategy: shard for a larger network",
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
                raise ValueError(f"{name} parallelism is not supported: {NOT_THERE[name]}")
        return raw

    def over(self, processes: int) -> "Parallel":
        """The same over so many processes; without axes where they cannot be laid."""
        return self if processes % self.tensor == 0 else Parallel()


Strategy = Literal["replicate", "shard", "hybrid"]
"""Whole on each process; in shards over all of them; in shards within a node, copied over nodes."""


class Spread(Frozen):
    """Describes how a network's step is laid out over memory and processes."""

    strategy: Strategy = "shard"
    """How the network is spread over the processes; the losses agree to 1e-5."""
    activation_checkpointing: ActivationCheckpointing = "none"
    """What a block holds for its backward pass: ``none``: all; ``block``: what came in, the rest is
    computed again; ``selective``: products and attention too. No number depends on it."""
    compile: bool = Field(default=False, exclude_if=unset)
    """Whether the blocks of a language model are compiled, each shape of a batch for itself; takes
    a C++ compiler where it trains."""
    cpu_offload: bool = Field(default=False, exclude_if=unset)
    """Whether shards, gradients and the optimizer's states lie in the host's memory, and the
    update is made there. Without a GPU they do anyway."""
    gradient_precision: GradientPrecision = "fp32"
    """The precision in which gradients are sent and summed. bf16 sends half the bytes; the results
    differ."""
    communication_hook: Literal["powersgd"] | None = Field(default=None, exclude_if=unset)
    """``powersgd`` (Vogels et al., 2019): each matrix's gradient is sent as two thin matrices, and
    the error is added to the next step's gradient. The results differ. A checkpoint holds the
    errors that are not sent yet."""
    communication_rank: Positive = Field(default=4, exclude_if=lambda value: value == 4)
    """Columns of the thin matrices of powersgd."""
    parallel: Parallel = Field(default=Parallel(), exclude_if=lambda value: value == Parallel())
    """Axes besides that of the rows; they change no result."""
    prefetch: bool = Field(default=False, exclude_if=unset)
    """Whether a thread reads the next batch while one is computed; the order stays. For a GPU, or
    where a core is free."""

    @field_validator("strategy", mode="before")
    @classmethod
    def _is_there(cls, value: object) -> object:
        if isinstance(value, str) and value in NOT_THERE:
            raise ValueError(f"strategy {value} is not supported: {NOT_THERE[value]}")
        return value


def split_of(world: int, here: int) -> tuple[int, int] | None:
    """(groups, processes of a group) of a hybrid: a group is a node, or a part of the only one.

    Args:
        world: processes in all.
        here: processes of one node.

    Returns:
        None where equal groups of two or more cannot be made.
    """
    if 1 < here < world and world % here == 0:
        return world // here, here
    groups = next((n for n in range(2, world // 2 + 1) if world % n == 0), None)
    return None if groups is None else (groups, world // groups)


def idle_share(microbatches: int, world: int) -> float:
    """Share of a step that ranks spend waiting where ``world`` does not divide ``microbatches``."""
    most = -(-microbatches // world)
    return 1 - microbatches / (most * world)
