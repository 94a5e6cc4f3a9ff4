"""Estimates a network's minimum training memory, and how long its state takes to save.

Arithmetic on the spec: nothing is built.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ml_assets.errors import DoesNotFit, counted
from ml_assets.settings.cluster import bytes_of
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.gpt import Gpt, parameter_count
from ml_assets.spec.parallel import split_of
from ml_assets.spec.training import (
    COUNTED,
    Mlp,
    ModelSpec,
    TabM,
    TrainingSpec,
    outputs_of,
)
from ml_assets.spec.training_program import ShardSchema, World

STATES = {"adamw": 2, "nadam": 2, "sgd": 1, "adafactor": 0}
"""Numbers that an optimizer keeps for each weight; Adafactor's are a row and a column of each."""
NUMBER_BYTES = 4
"""Bytes of a weight, a gradient and a state: all are fp32, whatever the network computes in."""
ALLOWANCE_SECONDS = 15.0
"""From the notice: the step that is under way, its evaluation, checksums and the manifest."""
BYTES_PER_MB = 1e6


@dataclass(frozen=True)
class Footprint:
    """The least that one process holds at once, and how it was counted."""

    bytes: int
    how: str


@dataclass(frozen=True)
class Room:
    """What the processes of one machine or one pod share."""

    bytes: int
    """Memory."""
    where: str
    """Names what has it."""
    gpus: bool = False
    """The steps are taken in the memory of GPUs, which is not counted here."""
    data_cache: int | None = None
    """Bytes of the disk for rows that are fetched as they are read; None: all rows are here."""


def machine_room() -> Room:
    """The memory of this machine, or of the container that this process runs in."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = Path("/sys/fs/cgroup/memory.max")
    held = limit.read_text().strip() if limit.is_file() else "max"
    gpus = Path("/dev/nvidia0").exists()
    if held.isdigit() and int(held) < whole:
        return Room(int(held), "this container (memory.max of its control group)", gpus)
    return Room(whole, "this machine", gpus)


def pod_room(cluster: ClusterSpec) -> Room:
    """What a pod of a training has."""
    room = bytes_of(cluster.memory) or 0
    cache = bytes_of(cluster.data_cache) if cluster.data_cache else None
    return Room(room, f"a pod (cluster.memory: {cluster.memory})", cluster.gpus_per_node > 0, cache)


def parameters(model: ModelSpec, numeric: int, vocabularies: Sequence[int], outputs: int) -> int:
    """The parameters of a network, as ``training.models.families`` builds it.

    Args:
        numeric: columns, the null flags among them.
        vocabularies: words of each categorical column.
    """
    assert isinstance(model, Mlp | TabM)
    sizes = [words + 1 for words in vocabularies]  # code 0: null or unknown
    widths = [min(model.embedding_limit, math.ceil(1.6 * size**0.56)) for size in sizes]
    embeddings = sum(size * width for size, width in zip(sizes, widths, strict=True))
    pairs = list(pairwise([numeric + sum(widths), *[model.width] * model.depth]))
    if isinstance(model, TabM):
        each = sum(a * b + model.members * (a + 2 * b) for a, b in pairs)
        return embeddings + each + model.members * (model.width * outputs + outputs)
    layers = sum(a * b + b for a, b in pairs)
    return embeddings + layers + model.width * outputs + outputs


def parameters_on(model: ModelSpec, schema: ShardSchema) -> int:
    """The parameters of a network on a training set."""
    columns = schema.preprocessing
    if isinstance(model, Gpt):
        assert columns.tokens is not None
        return parameter_count(model, columns.tokens.size)
    numeric = len(columns.numeric) + len(columns.null_flags)
    words = [len(column.vocabulary) for column in columns.categorical]
    return parameters(model, numeric, words, outputs_of(schema.task, schema.classes))


def footprint(
    count: int,
    model: ModelSpec,
    training: TrainingSpec,
    world: World,
    *,
    context: int = 1,
    held: float | None = None,
    gpus: bool = False,
) -> Footprint:
    """The least memory of one process of a world, that of a GPU not counted.

    A step holds weights, gradients and the optimizer's states (ZeRO, Rajbhandari et al. 2020, §3:
    each divided by the processes that share it), and what each layer put out, until its gradient is
    made. Every process holds the whole network once before, for it is built with real values first
    and sharded after. Buffers, copies and torch itself come on top.

    Args:
        context: tokens of a row, which is a window then.
        held: numbers that a row leaves for the backward pass, as they were measured; None: they
            follow from the model.
    """
    sharing = _sharing(training, world)
    states = 2 + STATES[training.optimizer] + (training.communication_hook is not None)
    built = count * NUMBER_BYTES
    state = count * states * NUMBER_BYTES // sharing
    tensor = training.parallel.tensor
    turns = math.ceil(training.microbatches / max(1, world.processes // tensor))
    rows = training.batch_size // training.microbatches * turns
    number = 2 if training.precision != "fp32" else NUMBER_BYTES
    each = _held_numbers(model, training) if held is None else _kept(held, training)
    outputs = int(rows * context * each * number) // tensor
    over = f" / {sharing} processes"
    step = (
        f"{counted(count, 'parameter')} x {states} numbers x {NUMBER_BYTES} bytes"
        f"{over if sharing > 1 else ''} = {_size(state)}, and {_size(outputs)} for the layers'"
        f" outputs on {rows:,} {'rows' if context == 1 else f'windows of {context:,} tokens'}"
    )
    if gpus or built > state + outputs:
        return Footprint(built, f"{counted(count, 'parameter')} x {NUMBER_BYTES} bytes, whole")
    return Footprint(state + outputs, step)


def _held_numbers(model: ModelSpec, training: TrainingSpec) -> int:
    """Numbers that a row (of a language model a token) leaves for the backward pass, at least.

    Of a transformer's block: what came in and its norm, the product for the heads (3 widths),
    turned queries and keys, what was seen, the sum and its norm, and 4 widths before and behind the
    activation. Where they are computed again, one block at a time is whole.
    """
    assert isinstance(model, COUNTED)
    if not isinstance(model, Gpt):
        members = model.members if isinstance(model, TabM) else 1
        return members * model.width * model.depth
    whole = 17
    each = {"none": whole, "selective": 10, "block": 1}[training.activation_checkpointing]
    return (each * (model.depth - 1) + whole) * model.width


def _kept(held: float, training: TrainingSpec) -> float:
    """Of what a team's network holds: nobody knows how much of it is computed again."""
    return held if training.activation_checkpointing == "none" else 0.0


def require_fits(
    model: ModelSpec,
    training: TrainingSpec,
    world: World,
    count: int,
    room: Room,
    context: int = 1,
    held: float | None = None,
) -> None:
    """Hold the processes of one machine to its memory.

    Args:
        world: with the processes of one machine as ``procs``.
        count: parameters of the network.
        context: tokens of a row, of a language model.
        held: see ``footprint``.

    Raises:
        DoesNotFit: they need more; the message gives the numbers.
    """
    each = footprint(count, model, training, world, context=context, held=held, gpus=room.gpus)
    needed = each.bytes * world.procs
    if needed <= room.bytes:
        return
    many = f", {world.procs} of them {_size(needed)}" if world.procs > 1 else ""
    again = " set training.activation_checkpointing to block," if isinstance(model, Gpt) else ""
    smaller = (
        "model.width or model.depth" if isinstance(model, COUNTED) else "sizes in model.config"
    )
    raise DoesNotFit(
        f"The training does not fit: each process needs at least {_size(each.bytes)}{many}"
        f" ({each.how}), and {room.where} has {_size(room.bytes)}. Lower {smaller},{again} lower"
        " training.batch_size and raise training.accumulate, or give it more memory."
    )


def _sharing(training: TrainingSpec, world: World) -> int:
    """How many processes hold one copy of the state together."""
    if training.strategy == "replicate":
        return 1
    if training.strategy == "shard":
        return world.processes
    split = split_of(world.processes, world.procs)
    return split[1] if split else world.processes


def _size(amount: int) -> str:
    return f"{amount / 1e9:,.2f} GB" if amount >= 5e6 else f"{amount / 1e6:,.2f} MB"


def write_seconds(state_bytes: int, mb_per_second: float) -> float:
    """Return how long one checkpoint is written, at so many megabytes (10^6 bytes) a second."""
    return state_bytes / BYTES_PER_MB / mb_per_second


def notice_seconds(state_bytes: int, mb_per_second: float) -> float:
    """``2 * write + 15``: at a notice one save may be in flight; it ends first, then the state of
    this very step is saved."""
    return 2 * write_seconds(state_bytes, mb_per_second) + ALLOWANCE_SECONDS
