"""Estimates a training before it runs, from the pace of earlier ones."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low
from typing import Any

from ml_assets.assets.trained_model.cost.jobs import Job
from ml_assets.errors import counted
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.training import TREES, Boosted
from ml_assets.spec.usage import AttemptUsage

LAST = 5
"""Trainings that are looked back at."""


@dataclass(frozen=True)
class TimeEstimate:
    node_time: int
    """Microseconds of machines."""
    how: str


@dataclass(frozen=True)
class _Pace:
    """The pace of one training, in microseconds of machines."""

    step: int
    """A step, those that were done again counted each time."""
    besides: int
    """Whatever was no step: starts, waiting, the export of the model."""


def estimate(steps: int, before: Sequence[Job]) -> TimeEstimate | None:
    """Steps at the usual pace of the last trainings, and what these took besides.

    A training on more machines is taken to need as much machine time; one that stops early for want
    of progress takes less than is estimated here.

    Args:
        steps: that it is to take at most.
        before: jobs of its pipeline that were over before it, oldest first.

    Returns:
        None where none of them trained.
    """
    return _at(steps, [pace for job in before if (pace := _pace(job)) is not None])


def _at(steps: int, known: Sequence[_Pace]) -> TimeEstimate | None:
    paces = known[-LAST:]
    if not paces:
        return None
    step = median_low(pace.step for pace in paces)
    besides = median_low(pace.besides for pace in paces)
    trainings = counted(len(paces), "training")
    how = (
        f"{counted(steps, 'step')} x {step / 1e3:,.1f} ms and {besides / 1e6:,.1f} s besides, as in"
        f" the last {trainings}"
    )
    return TimeEstimate(steps * step + besides, how)


def estimated(jobs: Sequence[Job]) -> dict[str, TimeEstimate]:
    """Job -> what could be said of it before it ran: of its steps, by those that were over then.

    Args:
        jobs: of one pipeline, oldest first.
    """
    paces = [
        (job.uses[-1].usage.held.ended, pace) for job in jobs if (pace := _pace(job)) is not None
    ]
    found: dict[str, TimeEstimate] = {}
    for job in jobs:
        steps = job.uses[0].usage.steps
        if steps is None or job.verb != "train":
            continue
        said = _at(steps, [pace for ended, pace in paces if ended <= job.created])
        if said is not None:
            found[job.name] = said
    return found


def planned_steps(last: int, then: Mapping[str, Any], spec: PipelineSpec) -> int:
    """The steps of a training by the present spec, from those of the last one.

    Args:
        last: steps that it was to take.
        then: the spec that it ran by; a part that is not known is taken to be as now.
    """
    model, training = then.get("model", {}), then.get("training", {})
    if isinstance(spec.model, Boosted):
        return spec.model.rounds
    if model.get("family") in TREES:
        return last
    now = spec.training
    rows = now.batch_size * now.accumulate
    rows_then = training.get("batch_size", now.batch_size) * training.get(
        "accumulate", now.accumulate
    )
    most = now.max_steps
    if training.get("max_steps") is not None:  # what an epoch took is not known
        return min(last, most or last)
    per_epoch = last * rows_then / (training.get("epochs", now.epochs) * rows)
    steps = max(1, math.ceil(per_epoch)) * now.epochs
    return min(steps, most or steps)


def _pace(job: Job) -> _Pace | None:
    """None where it took no step, or came to no result."""
    if job.verb != "train" or not job.done:
        return None
    runs = [_stepping(use.usage) for use in job.uses]
    time, steps = sum(time for time, _ in runs), sum(steps for _, steps in runs)
    return _Pace(time // steps, max(0, job.paid - time)) if steps else None


def _stepping(usage: AttemptUsage) -> tuple[int, int]:
    """Microseconds of machines in which an attempt took steps, and how many."""
    time = steps = 0
    for before, after in pairwise(usage.marks):
        if after.step > before.step:
            time += 1000 * max(0, after.after - before.after) * usage.held.nodes
            steps += after.step - before.step
    return time, steps
