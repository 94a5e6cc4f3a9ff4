"""Shows on which types of GPU a training fits, and how long it would take, without a GPU.

The operations of a row and the memory are measured in a few steps of the real program on this
machine. The share of a card's peak that a training reaches depends on the network, so the caller
states it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ml_assets.actions.tune_batch import open_sweep
from ml_assets.errors import TrainingFailed
from ml_assets.spec.training import Precision
from ml_assets.spec.training_program import MeasureResult
from ml_assets.store.pipeline_context import Pipeline

_STEPS = 2
"""Steps that are measured."""
UTILIZATION = 0.3
"""Share of the peak, where nobody says another: small networks stay far below, large ones above."""


@dataclass(frozen=True)
class Gpu:
    """A type of card, as its maker's data sheet has it."""

    memory_gb: int
    low: float
    """Peak of dense products in bf16 or fp16 by its tensor cores, 10^12 operations a second."""
    full: float
    """The same in fp32, without tensor cores."""


GPUS: Mapping[str, Gpu] = {
    "T4": Gpu(16, 65, 8.1),
    "L4": Gpu(24, 121, 30.3),
    "A100-40": Gpu(40, 312, 19.5),
    "A100-80": Gpu(80, 312, 19.5),
    "H100": Gpu(80, 989, 67),
    "H200": Gpu(141, 989, 67),
}


@dataclass(frozen=True)
class OnGpu:
    """Holds what a training would be on one card of a type."""

    name: str
    memory_gb: int
    fits: bool
    hours: float
    price: float | None
    """The price of an hour; None: nobody said one."""

    @property
    def cost(self) -> float | None:
        """The cost of the whole training; None: no price is known."""
        return None if self.price is None else self.price * self.hours


def measured_alone(pipeline: Pipeline) -> MeasureResult:
    """A few steps of the spec's training by one process of this machine.

    Raises:
        TrainingFailed: it has no room for them here, or something is wrong.
    """
    training = pipeline.spec.training
    sweep = open_sweep(pipeline, [training.batch_size], [1], [training.threads], _STEPS)
    (cell,) = sweep.cells()
    if cell.measured is None:
        raise TrainingFailed(f"{pipeline.name}: its steps were not measured: {cell.why_not}")
    return cell.measured


def on_gpus(
    found: MeasureResult, precision: Precision, utilization: float, prices: Mapping[str, float]
) -> tuple[OnGpu, ...]:
    """Each type of card, the smallest first.

    Args:
        found: of one process.
        utilization: share of the peak that the training is taken to reach.
        prices: name of a type -> the price of an hour.
    """
    rows = found.rows_per_second * found.step_time_ms / 1e3 * found.steps_planned
    operations = found.flops_per_row * rows
    return tuple(
        OnGpu(
            name,
            gpu.memory_gb,
            found.memory_total_mb <= 1e3 * gpu.memory_gb,
            operations / (_peak(gpu, precision) * utilization) / 3600,
            prices.get(name),
        )
        for name, gpu in GPUS.items()
    )


def _peak(gpu: Gpu, precision: Precision) -> float:
    return 1e12 * (gpu.full if precision == "fp32" else gpu.low)
