"""One global step over all ranks: forward, backward, sums, and the update."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch.optim import Optimizer

from ml_assets.spec.training import Task, TrainingSpec
from ml_assets.training.batches import Batches
from ml_assets.training.losses import row_losses, row_weights
from ml_assets.training.models import Network
from ml_assets.training.optimization import learning_rate
from ml_assets.training.parallel import Ranks, sum_gradients, total
from ml_assets.training.stop import NonFinite
from ml_assets.training.telemetry import Times


class Word(NamedTuple):
    """What a rank has to tell the others; it rides on the sums of a step."""

    notice: bool
    """It was told to stop."""
    checkpoint_due: bool
    """By its clock; that of rank 0 counts."""


class Step(NamedTuple):
    """What one global step came to, equal on all ranks."""

    loss: float
    """Mean over the rows."""
    grad_norm: float
    """Before clipping."""
    rows: float
    notice: bool
    """A rank was told to stop."""
    checkpoint_due: bool


@dataclass
class Stepper:
    """Takes steps on one network; everything but its weights is a function of the step."""

    network: Network
    optimizer: Optimizer
    batches: Batches
    ranks: Ranks
    spec: TrainingSpec
    task: Task
    times: Times = field(default_factory=Times)

    @property
    def steps(self) -> int:
        """Of the whole training."""
        return self.batches.steps_per_epoch * self.spec.epochs

    def take(self, step: int, word: Callable[[], Word]) -> Step:
        """One step, the same on all ranks.

        Args:
            word: asked for as late as may be, so that a notice is heard at once.

        Raises:
            NonFinite: the loss or the gradient is no number; nothing was updated.
        """
        loss, weight, rows = self._backward(step)
        with self.times.communication:
            sum_gradients(self.network, self.spec.strategy, self.ranks.world)
        notice, due = word()
        due = due and self.ranks.rank == 0
        sums = [loss, weight, float(rows), float(notice), float(due)]
        with self.times.communication:
            loss_sum, weight_sum, count, notices, dues = total(sums)
        norm = self._scale_and_clip(weight_sum)
        mean = loss_sum / weight_sum
        if not (math.isfinite(mean) and math.isfinite(norm)):
            raise NonFinite(
                f"loss {mean} and gradient norm {norm} at step {step}: nothing was updated. Lower"
                " training.learning_rate or training.clip_norm, or look for broken feature values.",
                step,
            )
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.spec, step, self.steps)
        self.optimizer.step()
        return Step(mean, norm, count, notices > 0, dues > 0)

    def _backward(self, step: int) -> tuple[float, float, int]:
        """Gradients of this rank's share; its loss and weight, summed, and how many rows count."""
        with self.times.data:
            rows, masks, counted = self.batches.share(step, self.ranks.rank, self.ranks.world)
        logits = self.network(rows.numeric, rows.categorical, masks)
        weights = row_weights(rows, self.task, self.spec.positive_weight)
        weights = weights if counted else torch.zeros_like(weights)
        loss = (row_losses(logits, rows, self.task) * weights).sum()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        return float(loss.detach()), float(weights.sum()), counted

    def _scale_and_clip(self, weight_sum: float) -> float:
        """Gradients become means over the global weight; returns their norm before clipping."""
        parameters = [p for p in self.network.parameters() if p.grad is not None]
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad.div_(weight_sum)
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.spec.clip_norm)
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)  # pyright: ignore[reportAttributeAccessIssue]  a DTensor
