"""What a training is put together from: a network at its first values, and what steps need."""

from pathlib import Path

import torch

from ml_assets.spec.program import MeasureRequest, ShardSchema, TrainRequest
from ml_assets.training.distributed.ranks import Ranks
from ml_assets.training.distributed.strategies import parallelize
from ml_assets.training.models import Network, build, set_output_bias
from ml_assets.training.optimization import make_optimizer
from ml_assets.training.rows.arrays import SplitArrays
from ml_assets.training.rows.batches import Batches
from ml_assets.training.rows.oversampling import draws_again
from ml_assets.training.step import Stepper
from ml_assets.training.telemetry import Times
from ml_assets.training.warm_start import warm_start


def first_values(
    request: TrainRequest | MeasureRequest, schema: ShardSchema
) -> tuple[Network, str | None]:
    """The network before its first step, the same on every rank.

    Returns:
        With it a sentence about the weights that it begins with; None where they are fresh.
    """
    torch.manual_seed(request.training.seed)
    network = build(request.model, schema.preprocessing, schema.task, schema.classes)
    set_output_bias(network, schema.task, schema.label_rate)
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
    rows = SplitArrays(folder, schema, "train")
    again = draws_again(rows, schema, spec.oversample)
    batches = Batches(rows, spec.seed, spec.batch_size, spec.microbatches, spec.accumulate, again)
    most = request.steps if isinstance(request, TrainRequest) else None
    return Stepper(network, forward, optimizer, batches, ranks, spec, schema.task, times, most)
