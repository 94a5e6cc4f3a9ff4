"""A job's share of costs besides its machines: the data steps made for it, and its part of the
stores. Every step and every byte is in exactly one share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from ml_assets.assets.trained_model.cost.jobs import Job
from ml_assets.assets.trained_model.cost.money import added, of_time
from ml_assets.records.data_steps import DataStep

NO_JOB = "no job yet"
"""Whose the steps are that were made after the last training began."""


@dataclass(frozen=True)
class Share:
    """The share of one job, or of some together."""

    steps: int = 0
    time: int = 0
    """Microseconds of the machine that made them."""
    cost: Fraction | None = None
    """The cost of that time; None: no price is known."""
    stored: Fraction = Fraction()
    """Bytes that lie in the stores now."""

    def storage(self, gb: Decimal | None) -> Fraction | None:
        """What those bytes cost in a month, by the price of a GB; None: not known."""
        return None if gb is None else self.stored * Fraction(gb) / 10**9


def shares(
    jobs: Sequence[Job], steps: Iterable[DataStep], by_job: Mapping[str, int], stored: int
) -> dict[str, Share]:
    """Job -> its share, of one pipeline; ``NO_JOB`` -> what no training has used yet.

    A step is for the first training that began after it. What lies there is its session's own;
    the rest (tables, training sets, records, reports) is owed by all trainings alike.

    Args:
        jobs: oldest first.
        by_job: bytes of the sessions' own.
        stored: bytes of the pipeline, those of the sessions too.
    """
    trainings = [job for job in jobs if job.verb == "train"]
    found = {job.name: Share(stored=Fraction(by_job.get(job.name, 0))) for job in jobs}
    rest = stored - sum((one.stored for one in found.values()), Fraction())
    bearers = [job.name for job in trainings] or [NO_JOB]
    for name in bearers:
        part = Share(stored=rest / len(bearers))
        found[name] = together([found.get(name, Share()), part])
    for step in steps:
        user = next((job.name for job in trainings if job.created >= step.ended), NO_JOB)
        price = None if step.node_hour is None else Decimal(step.node_hour)
        own = Share(1, step.took, of_time(step.took, price))
        found[user] = together([found.get(user, Share()), own])
    return found


def together(parts: Sequence[Share]) -> Share:
    """The sum."""
    return Share(
        steps=sum(one.steps for one in parts),
        time=sum(one.time for one in parts),
        cost=added(one.cost for one in parts),
        stored=sum((one.stored for one in parts), Fraction()),
    )
