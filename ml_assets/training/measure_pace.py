"""The ``measure`` verb: runs a few steps of a training and times them. Nothing is kept.

The sanity step uses it for the pace of one process by itself.
"""

import time
from pathlib import Path
from statistics import median

import torch
from torch.utils.flop_counter import FlopCounterMode

from ml_assets.spec.gpt import Gpt
from ml_assets.spec.sanity import Alone, alone
from ml_assets.spec.training_program import (
    MeasureRequest,
    MeasureResult,
    SanityRequest,
    ShardSchema,
)
from ml_assets.training.diagnosis import is_out_of_memory
from ml_assets.training.distributed.ranks import join, leave, total
from ml_assets.training.events import EventWriter
from ml_assets.training.models.gpt import flops_per_token
from ml_assets.training.rows.arrays import open_set
from ml_assets.training.rows.batches import Batches
from ml_assets.training.step import Stepper, StopFlags, assemble, initial_network
from ml_assets.training.stop import Stopped
from ml_assets.training.telemetry import Spent, memory_peak_mb

_WARM = 2
"""Steps before those that are measured: the first ones make buffers."""
_ALONE_STEPS, _ALONE_SECONDS, _SLOW_STEP = 36, 0.75, 0.25
"""For one process by itself: most steps, the seconds after which no more is taken, and those from
which a first step counts as well."""


def measure(request: MeasureRequest, events: EventWriter) -> None:
    """Take the steps on all ranks; rank 0 writes the result."""
    torch.set_num_threads(request.world.threads)
    torch.set_deterministic_debug_mode("error")
    folder, schema = open_set(request.data, request.splits)
    ranks = join()
    try:
        stepper = assemble(request, initial_network(request, schema)[0], folder, schema, ranks)
        rows, spent, cpu, memory = _measured(stepper, request.steps)
    finally:
        leave()
    if ranks.rank != 0:
        return
    seconds, shares = spent.seconds / ranks.world, spent.shares()
    result = MeasureResult(
        session=request.session,
        attempt=request.attempt,
        rows_per_second=rows / seconds,
        rows_per_cpu_second=rows / cpu,
        step_time_ms=1e3 * seconds / request.steps,
        memory_total_mb=memory,
        data_wait_share=shares["data_wait_share"],
        communication_share=shares["communication_share"],
        flops_per_row=_flops_per_row(request, schema, stepper.batches),
        steps_planned=stepper.steps,
    )
    events.finished(result, request.output.result)


def _flops_per_row(request: MeasureRequest, schema: ShardSchema, batches: Batches) -> float:
    """As torch counts the products of one microbatch; a language model's by its own formula."""
    tokens = schema.preprocessing.tokens
    if isinstance(request.model, Gpt) and tokens is not None:
        return tokens.context * flops_per_token(request.model, tokens.size, tokens.context)
    network = initial_network(request, schema)[0]
    rows, masks, _ = batches.share(0, 0, batches.microbatches)
    with FlopCounterMode(display=False) as counted:
        network(rows.numeric, rows.categorical, masks).sum().backward()
    return counted.get_total_flops() / len(rows.label)


def _measured(stepper: Stepper, steps: int) -> tuple[float, Spent, float, float]:
    """Rows, and of all ranks added up: what time was spent on, CPU seconds, memory in MB."""
    rows, began, cpu, scale = 0.0, 0.0, 0.0, None
    full = _full_steps(stepper.batches)
    for number in range(_WARM + steps):
        if number == _WARM:
            stepper.times.of(0.0)
            rows, began, cpu = 0.0, time.perf_counter(), time.process_time()
        done = stepper.take(number % full, scale, lambda: StopFlags(False, False))
        rows, scale = rows + done.rows, done.loss_scale
    spent = stepper.times.of(time.perf_counter() - began)
    *sums, cpu, memory = total([*spent, time.process_time() - cpu, memory_peak_mb()])
    return rows, Spent(*sums), cpu, memory


def _full_steps(batches: Batches) -> int:
    """The steps of an epoch without its last one, which may be short."""
    return max(1, batches.draws // (batches.batch_size * batches.accumulate))


def pace_alone(request: SanityRequest, folder: Path, schema: ShardSchema) -> Alone | None:
    """Train some steps in this process alone, each of as many rows as one of all processes takes.

    None: its blocks are compiled first, which takes minutes; it has a teacher, who is not here; or
    the steps fail, which the training says for itself.
    """
    if request.training.compile or request.training.distill:
        return None
    asked = MeasureRequest(
        session=request.session,
        attempt=request.attempt,
        data=request.data,
        world=request.world,
        code=request.code,
        on_demand=request.on_demand,
        model=request.model,
        training=alone(request.training),
        steps=_ALONE_STEPS,
        output=request.output,
    )
    network = initial_network(asked, schema)[0]
    ranks = join()
    try:
        stepper = assemble(asked, network, folder, schema, ranks)
        return Alone(rows_per_second=_steady(stepper), gpu=ranks.device.type == "cuda")
    except Stopped:
        return None
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None
    finally:
        leave()


def _steady(stepper: Stepper) -> float:
    """Rows a second of the usual step after the first ones."""
    rates, seconds, scale = list[float](), 0.0, None
    full = _full_steps(stepper.batches)
    for number in range(_WARM + _ALONE_STEPS):
        began = time.perf_counter()
        done = stepper.take(number % full, scale, lambda: StopFlags(False, False))
        took, scale = time.perf_counter() - began, done.loss_scale
        if number >= _WARM or took >= _SLOW_STEP:
            rates.append(done.rows / took)
            seconds += took
        if seconds >= _ALONE_SECONDS:
            break
    return median(rates)
