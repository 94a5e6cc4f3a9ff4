"""The subject of the checks: a network as training begins, and the first rows it would see."""

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ml_assets.spec.sanity import NetworkSize, SanityCheck, SanityName
from ml_assets.spec.training import ModelSpec, Task, TrainingSpec
from ml_assets.spec.training_program import ShardSchema
from ml_assets.store.block_order import BlockOrder
from ml_assets.training.losses import row_weights, training_losses
from ml_assets.training.models.layers import Masks
from ml_assets.training.models.network import Network
from ml_assets.training.rows.arrays import SplitArrays
from ml_assets.training.rows.batches import Batches, Tensors, tensors


@dataclass(frozen=True)
class Subject:
    """A network that no check changes: those that train work on a clone."""

    network: Network
    model: ModelSpec
    spec: TrainingSpec
    folder: Path
    """Of the training set, examined against its digest."""
    schema: ShardSchema
    rows: SplitArrays
    """The training split."""
    held_out: SplitArrays
    """The validation split."""

    @property
    def task(self) -> Task:
        return self.schema.task

    def clone(self) -> Network:
        return copy.deepcopy(self.network)

    def batch(self, rows: int, step: int = 0) -> Tensors:
        """About so many rows of the order that training has, whole queries of a ranking."""
        size = self.rows.units_for(rows)
        spec, blocks = self.spec, None
        if spec.order == "blocks":
            blocks = BlockOrder(self.rows.shards, spec.block_rows, spec.block_window, 1, size)
        return Batches(self.rows, spec.seed, size, 1, blocks=blocks).share(step, 0, 1)[0]

    def unseen(self, rows: int) -> Tensors:
        """About so many rows of the validation split, spread evenly over it."""
        units = np.linspace(0, self.held_out.units - 1, self.held_out.units_for(rows))
        return tensors(self.held_out.take_units(np.unique(units.astype(np.int64))))

    def loss(self, network: Network, rows: Tensors) -> torch.Tensor:
        """The loss that training would take of these rows, their mean; without dropout."""
        return self.mean_loss(network(rows.numeric, rows.categorical, one_microbatch(rows)), rows)

    def mean_loss(self, logits: torch.Tensor, rows: Tensors) -> torch.Tensor:
        weights = self.weights(rows)
        losses = training_losses(self.network, logits, rows, self.task, self.spec)
        return (losses * weights).sum() / weights.sum()

    def weights(self, rows: Tensors) -> torch.Tensor:
        return row_weights(rows, self.task, self.spec.positive_weight, self.spec.class_weights)


def one_microbatch(rows: Tensors) -> Masks:
    """The rows as training would take them of one microbatch, with nothing dropped out."""
    return Masks((0,), (len(rows.numeric),), drops=False)


def verdict(name: SanityName, value: float, bound: float, saw: str, remedy: str) -> SanityCheck:
    """Passed where ``value`` is within ``bound``; what is no number is not."""
    known = bool(np.isfinite(value))
    passed = known and value <= bound
    return SanityCheck(
        name=name,
        outcome="passed" if passed else "failed",
        value=value if known else None,
        bound=bound,
        reason=saw if passed else f"{saw} {remedy}",
    )


def drawing(subject: Subject, count: int) -> str:
    """The modules in which something is drawn: `` in blocks.0.drop (Dropout2d)``."""
    network, before, found = subject.clone(), dict[nn.Module, list[np.ndarray]](), list[str]()
    names = {module: name for name, module in network.named_modules()}

    def begun(module: nn.Module, _: object) -> None:
        before[module] = generators()

    def ended(module: nn.Module, _: object, __: object) -> None:
        same = zip(before[module], generators(), strict=True)
        if any((one != other).any() for one, other in same):
            found.append(f"{names[module]} ({type(module).__name__})")

    for module in network.modules():
        if not list(module.children()):  # what holds others draws in them, or in its own pass
            module.register_forward_pre_hook(begun)
            module.register_forward_hook(ended)
    rows = subject.batch(count)
    network(rows.numeric, rows.categorical, Masks((0,), (len(rows.label),)))
    return f" in {', '.join(found[:3])}" if found else ""


def network_size(subject: Subject) -> NetworkSize:
    """Count the parameters, and the numbers that one more row leaves for the backward pass.

    What is held of 32 rows is taken from that of 64: so
    what is there whatever the rows are (weights, buffers) does not count.
    """
    network = subject.clone().train()
    few, many = (_held_bytes(subject, network, count) for count in (32, 64))
    held = max(0.0, (many - few) / 32 / 4)
    return NetworkSize(parameters=sum(p.numel() for p in network.parameters()), held_numbers=held)


def _held_bytes(subject: Subject, network: Network, count: int) -> int:
    rows, held = subject.batch(count), dict[int, int]()
    places = torch.arange(count) % len(rows.label)
    inputs = rows.numeric[places], rows.categorical[places]
    kept = list[torch.Tensor]()  # else another one would get the same place

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        network(*inputs, Masks((subject.spec.seed,), (count,)))
    return sum(held.values())


def mixing(
    network: Network,
    inputs: Sequence[Sequence[torch.Tensor]],
    masks: Masks | None,
    kept: torch.Tensor,
) -> str:
    """The first module that tells other rows of the same ones: `` in norm (BatchNorm1d)``.

    Args:
        inputs: numeric and categorical, twice; the rows that are kept are the same in both.
    """
    network, passes = copy.deepcopy(network), list[list[tuple[str, bool, torch.Tensor]]]()
    names = {module: name for name, module in network.named_modules()}

    def ended(module: nn.Module, given: tuple[object, ...], made: object) -> None:
        held = [one for one in (*given, made) if isinstance(one, torch.Tensor)]
        if held and all(len(one) == len(kept) for one in held):
            named = f" in {names[module]} ({type(module).__name__})"
            passes[-1] += [(named, one is made, one[kept]) for one in held]

    for module in network.modules():
        if not list(module.children()):
            module.register_forward_hook(ended)
    for rows in inputs:
        passes.append([])
        with torch.no_grad():
            network(*rows, masks)
    differ = (
        (named, made)
        for (named, made, one), (_, _, other) in zip(*passes, strict=False)
        if not torch.equal(one, other)
    )
    named, made = next(differ, ("", False))
    return named if made else ""  # what came in already differs: between two modules


def generators() -> list[np.ndarray]:
    """The states of the generators that a network could draw from."""
    plain = np.array([hash(random.getstate())])
    return [torch.get_rng_state().numpy().copy(), np.random.get_state()[1].copy(), plain]  # pyright: ignore[reportArgumentType]  the legacy generator is the one to look at
