"""One global step over all ranks: forward, backward, sums, and the update; and its inputs."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.optim import Optimizer

from ml_assets.spec.training import Task, TrainingSpec
from ml_assets.spec.training_program import MeasureRequest, ShardSchema, TrainRequest
from ml_assets.spec.training_program.events import DrawnRows
from ml_assets.training.distributed.ranks import Ranks, total
from ml_assets.training.distributed.step_checks import (
    Pass,
    locate_non_finite,
    require_same_branches,
)
from ml_assets.training.distributed.strategies import (
    Replica,
    copies,
    local_gradients,
    parallelize,
    summing,
)
from ml_assets.training.losses import row_weights, training_losses
from ml_assets.training.models.batch_norm import RunningStatistics
from ml_assets.training.models.families import code_of, fresh_network
from ml_assets.training.models.network import Network
from ml_assets.training.optimization import learning_rate, make_optimizer, rates_of
from ml_assets.training.rows.batches import Batches, Tensors
from ml_assets.training.rows.loader import Changes, Lane, Loader, Share
from ml_assets.training.rows.oversampling import count_rows, oversample_index
from ml_assets.training.rows.training_split import open_training_split
from ml_assets.training.stop import NonFinite
from ml_assets.training.teacher import Teacher, load_teacher
from ml_assets.training.telemetry import Stopwatch, Times
from ml_assets.training.trainer_state import MOST_SKIPS, LossScale
from ml_assets.training.weights import warm_start


class StopFlags(NamedTuple):
    """A rank's flags for the others; they ride on the sums of a step."""

    notice: bool
    """This rank was told to stop."""
    checkpoint_due: bool
    """A checkpoint is due by this rank's clock; that of rank 0 counts."""


class Step(NamedTuple):
    """The outcome of one global step, equal on all ranks."""

    loss: float
    """Mean over the rows."""
    grad_norm: float
    """Before clipping; 0 where an fp16 step was skipped: nothing was updated."""
    rows: float
    notice: bool
    """A rank was told to stop."""
    checkpoint_due: bool
    loss_scale: LossScale | None
    """For the next step; None but for fp16."""
    drawn: DrawnRows
    """By all ranks."""


@dataclass
class Stepper:
    """Takes steps on one network; everything but its weights is a function of the step."""

    network: Network
    forward: nn.Module
    """Is called for logits: see ``parallelize``."""
    optimizer: Optimizer
    batches: Batches
    ranks: Ranks
    spec: TrainingSpec
    task: Task
    times: Times = field(default_factory=Times)
    most_steps: int | None = None
    changes: Changes = field(default_factory=Changes)
    """What is done to rows before a step learns from them."""
    teacher: Teacher | None = None
    """Whom the network learns from beside the labels."""
    compare_branches: bool = True
    """The next step compares the ranks' branches: see ``require_same_branches``."""

    def __post_init__(self) -> None:
        """Let torch's replica settle.

        After its first backward pass it orders the gradients anew, and three or more ranks then sum
        them in another order: the first step of a resume would have other bits.
        """
        self.rates = rates_of(self.network, self.spec)
        self.statistics = RunningStatistics(self.network)
        tensor = self.spec.parallel.tensor
        self.lanes = self.ranks.lanes(tensor)
        self._counts = self.ranks.rank % tensor == 0  # of ranks with the same rows, one
        ahead = self.spec.prefetch and not self.batches.rows.fetches  # these come ahead anyway
        lane = Lane(self.lanes.rank, self.lanes.world, self.ranks.device)
        self.loader = Loader(self.batches, self.changes, lane, self.steps, ahead=ahead)
        if isinstance(self.forward, Replica):
            self._backward(0, 1.0)  # its rows are nobody's
            self.optimizer.zero_grad(set_to_none=True)
            self.forward.begin()
            self.times.of(0.0)  # nobody's step

    @property
    def steps(self) -> int:
        """The steps of the whole training."""
        declared = self.batches.steps_per_epoch * self.spec.epochs
        return min(declared, self.spec.max_steps or declared, self.most_steps or declared)

    def take(self, step: int, scale: LossScale | None, flags: Callable[[], StopFlags]) -> Step:
        """One step, the same on all ranks.

        Args:
            scale: where the last step left it; None at the first, and but for fp16.
            flags: asked for as late as may be, so that a notice is heard at once.

        Raises:
            NonFinite: the loss or the gradient is no number; nothing was updated.
        """
        if self.spec.precision == "fp16" and scale is None:
            scale = LossScale()
        # a power of two, and about a mean: fp16 has no room for a sum over the rows of a step
        factor = 1.0 if scale is None else scale.scale / 2 ** self.spec.batch_size.bit_length()
        sums, drawn = self._backward(step, factor)
        gradients = local_gradients(self.network.parameters())
        square = _square(self.network, self.ranks.world)
        if not self._counts:
            sums, drawn = torch.zeros_like(sums), DrawnRows()
        mine = torch.cat([sums, square.reshape(1).to(sums.device)]).tolist()
        counted = map(float, drawn.sums)
        notice, due = flags()
        due = due and self.ranks.rank == 0
        with self.times.communication:
            found = total([*mine, float(notice), float(due), *counted])
        loss, weight, rows, square, notices, dues, *of_all = found
        mean, norm = loss / weight, math.sqrt(square) / (weight * factor)
        overflowed = scale is not None and math.isfinite(mean) and not math.isfinite(norm)
        if overflowed:
            self._skip()
        elif not (math.isfinite(mean) and math.isfinite(norm)):
            raise self._non_finite(mean, norm, step)
        else:
            clipped = min(1.0, self.spec.clip_norm / (norm + 1e-6))
            self._update(step, gradients, clipped / (weight * factor))
        if scale is not None:
            scale = scale.after(overflowed=overflowed)
            if scale.skipped_in_a_row >= MOST_SKIPS:
                raise self._non_finite(mean, norm, step)
        drawn = DrawnRows.of(*map(int, of_all))
        return Step(mean, 0.0 if overflowed else norm, rows, notices > 0, dues > 0, scale, drawn)

    def _backward(self, step: int, factor: float) -> tuple[torch.Tensor, DrawnRows]:
        """Gradients of this rank's share, times ``factor``, summed over all ranks.

        Returns [loss, weight, rows] float64 of the share, and what it drew; rows are those that
        count.
        """
        self.optimizer.zero_grad(set_to_none=True)
        self.statistics.begin()
        sums = torch.zeros(3, dtype=torch.float64, device=self.ranks.device)
        drawn = DrawnRows()
        for number in range(self.spec.accumulate):
            with self.times.data:
                share = self.loader.take(step, number)
            with summing(self.forward, now=number + 1 == self.spec.accumulate):
                each, weights = self._losses(share)
                self.statistics.add(counted=share.counted > 0)
                loss = each.sum()
                if self.compare_branches:
                    require_same_branches(loss, self.network, self.ranks, step)
                    self.compare_branches = False
                (loss * factor).backward()
            self.times.communication.answered()
            count = loss.new_tensor(float(share.counted))
            sums += torch.stack([loss.detach(), weights.sum(), count])
            if share.counted and share.rows.numbers is not None:
                drawn = drawn.plus(count_rows(share.rows.numbers))
        return sums, drawn

    def _losses(self, share: Share) -> tuple[torch.Tensor, torch.Tensor]:
        """The weighted losses of the rows, and the weights; both [n]."""
        rows = share.rows
        logits = self.forward(rows.numeric, rows.categorical, share.masks)
        each, weights = self._weighed(logits, rows, share.weights)
        if share.others is not None and share.own is not None:
            theirs = None if share.weights is None else share.weights[share.others]
            mixed = replace(rows, label=rows.label[share.others])
            other, others = self._weighed(logits, mixed, theirs)
            each = share.own * each + (1 - share.own) * other
            weights = share.own * weights + (1 - share.own) * others
        if self.teacher is not None:
            each = each + self.teacher.losses(logits, rows) * weights
        idle = torch.zeros_like(weights)
        return (each, weights) if share.counted else (each * idle, idle)

    def _weighed(
        self, logits: torch.Tensor, rows: Tensors, turn: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        spec = self.spec
        weights = row_weights(rows, self.task, spec.positive_weight, spec.class_weights)
        weights = weights if turn is None else weights * turn
        return training_losses(self.network, logits, rows, self.task, spec) * weights, weights

    def _non_finite(self, loss: float, norm: float, step: int) -> NonFinite:
        """The error that names rank, batch and rows. All ranks are here: the sums are theirs."""
        unit = "queries" if self.task == "ranking" else "rows"
        found = locate_non_finite(self._passes(step), self.ranks, unit)
        return NonFinite(f"{_advice(loss, norm, step, self.spec)} {found}", step)

    def _passes(self, step: int) -> Iterator[Pass]:
        """The step once more, one batch after the other; nothing is summed over the ranks."""
        for number in range(self.spec.accumulate):
            share = self.loader.take(step, number)
            share.rows.numeric.requires_grad_()
            with summing(self.forward, now=False):
                yield Pass(share.rows, self._losses(share)[0])

    def _update(self, step: int, gradients: list[torch.Tensor], factor: float) -> None:
        """Sums times ``factor`` are means over the global weight, clipped."""
        for gradient in gradients:
            gradient.mul_(factor)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * learning_rate(self.spec, step, self.steps)
        self.optimizer.step()
        self.statistics.move(self.times.communication)

    def _skip(self) -> None:
        """Update nothing. The optimizer has its state from the first step on, whoever saves it."""
        self.optimizer.zero_grad(set_to_none=True)
        if not self.optimizer.state:
            get_optimizer_state_dict(self.network, self.optimizer)


def _square(network: nn.Module, world: int) -> torch.Tensor:
    """The squared norm of the gradient, float64, such that ranks can be added.

    How the gradients are spread shows in no bit that counts.
    """
    norms: dict[int, list[torch.Tensor]] = {}
    for parameter in network.parameters():
        for gradient in local_gradients([parameter]):
            norm = torch.linalg.vector_norm(gradient, dtype=torch.float64)
            norms.setdefault(copies(parameter, world), []).append(norm)
    parts = [torch.stack(found).square().sum() / same for same, found in norms.items()]
    return torch.stack(parts).sum() if len(parts) > 1 else parts[0]


def _advice(loss: float, norm: float, step: int, spec: TrainingSpec) -> str:
    said = (
        f"loss {loss} and gradient norm {norm} at step {step}: nothing was updated. Lower"
        " training.learning_rate or training.clip_norm, or look for broken feature values."
    )
    if spec.precision != "fp16":
        return said
    return (
        f"{said} fp16 holds nothing above 65504, whatever the scale of the loss ({MOST_SKIPS} steps"
        " in a row may overflow): set training.precision to bf16 or fp32."
    )


def initial_network(
    request: TrainRequest | MeasureRequest, schema: ShardSchema
) -> tuple[Network, str | None]:
    """The network that training begins with, the same on every rank.

    Returns:
        With it a sentence about the weights that it takes over; None where they are fresh.
    """
    network = fresh_network(request.model, request.training.seed, schema, code_of(request))
    init = request.init if isinstance(request, TrainRequest) else None
    return network, warm_start(network, init, schema) if init else None


def assemble(
    request: TrainRequest | MeasureRequest,
    network: Network,
    folder: Path,
    schema: ShardSchema,
    ranks: Ranks,
) -> Stepper:
    """Spread the network over the ranks, with its optimizer and its batches."""
    spec = request.training
    network, times = network.to(ranks.device), Times()
    forward = parallelize(network, spec, ranks, times.communication)
    optimizer = make_optimizer(network, spec)
    waits = Stopwatch()
    times.fetch = waits if request.on_demand else None
    batches = open_batches(request, folder, schema, waits)
    times.fetched_bytes = (lambda: batches.rows.fetched_bytes) if request.on_demand else None
    return Stepper(
        network,
        forward,
        optimizer,
        batches,
        ranks,
        spec,
        schema.task,
        times,
        request.steps if isinstance(request, TrainRequest) else None,
        changes_of(network, spec, schema),
        load_teacher(request, schema, ranks.device) if isinstance(request, TrainRequest) else None,
    )


def open_batches(
    request: TrainRequest | MeasureRequest,
    folder: Path,
    schema: ShardSchema,
    waits: Stopwatch,
) -> Batches:
    """The batches of the steps, in the order and with the draws that the training asks for.

    Args:
        waits: runs while rows that are fetched are waited for.
    """
    spec = request.training
    rows, blocks = open_training_split(request, folder, schema, waits)
    extra = oversample_index(rows, schema, spec.oversample)
    size = (spec.batch_size, spec.microbatches, spec.accumulate)
    return Batches(rows, spec.seed, *size, extra, blocks, spec.epochs)


def changes_of(network: Network, spec: TrainingSpec, schema: ShardSchema) -> Changes:
    """What a training does to rows before a step learns from them."""
    names = [column.name for column in schema.preprocessing.numeric]
    turn = spec.curriculum
    column = names.index(turn.column) if turn else 0
    return Changes(spec.augmentation, network.own_augmentation, len(names), turn, column)
