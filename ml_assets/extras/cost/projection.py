"""What a schedule costs in a year: its ticks times the mean cost of the runs so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from ml_assets.assets.trained_model.cost.jobs import Job
from ml_assets.assets.trained_model.cost.money import added
from ml_assets.automation.due_times import due_times
from ml_assets.spec.automation import cron_expression
from ml_assets.spec.pipeline import PipelineSpec

YEAR = timedelta(days=365)
LAST = 10
"""Runs that are looked back at."""


@dataclass(frozen=True)
class Projection:
    """A year of a pipeline's refresh, where each tick finds something to do."""

    cron: str
    ticks: int
    """In the year that begins now."""
    runs: int
    """That the means are of."""
    node_time: int
    """Microseconds of machines that a run held, mean."""
    cost: Fraction | None
    """The cost of a run, mean; None: no price is known."""

    @property
    def node_time_a_year(self) -> int:
        return self.node_time * self.ticks

    @property
    def a_year(self) -> Fraction | None:
        return None if self.cost is None else self.cost * self.ticks


def projection(spec: PipelineSpec, jobs: Sequence[Job], now: datetime) -> Projection | None:
    """The year that begins now; None where no schedule is declared, or no run has trained yet."""
    declared = spec.automation.refresh
    runs = _runs(jobs)[-LAST:]
    if declared is None or not runs:
        return None
    cron = cron_expression(declared.every, declared.at, declared.cron)
    costs = [added(use.cost for job in run for use in job.uses) for run in runs]
    known = [cost for cost in costs if cost is not None]
    return Projection(
        cron=cron,
        ticks=len(due_times(cron, declared.timezone or spec.partitions.timezone, now, now + YEAR)),
        runs=len(runs),
        node_time=sum(job.paid for run in runs for job in run) // len(runs),
        cost=sum(known, Fraction()) / len(known) if known else None,
    )


def _runs(jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs of each run that trained, oldest run first."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        if job.run is not None:
            found.setdefault(job.run, []).append(job)
    return [run for run in found.values() if any(job.verb == "train" for job in run)]
