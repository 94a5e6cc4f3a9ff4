"""Usage and cost by pipeline, owner, job or month: sums of jobs, beside their estimates.

A job's share besides its machines is the data steps made for it and its part of the stores: every
step and every byte is in exactly one share.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal, get_args

from ml_assets.assets.trained_model.cost.jobs import Job, Use
from ml_assets.assets.trained_model.cost.money import added, of_time
from ml_assets.assets.trained_model.cost.split import PAID, PARTS, Part, Split, total
from ml_assets.extras.cost.estimate import TimeEstimate
from ml_assets.records.data_steps import DataStep
from ml_assets.settings import PRICE_CLASSES, PriceClass

By = Literal["pipeline", "owner", "job", "month"]
BY: tuple[By, ...] = get_args(By)


@dataclass(frozen=True)
class Bought:
    """Machines that were held, of one price class."""

    node_time: int
    """Microseconds of machines."""
    gpu_time: int
    """Microseconds of their GPUs."""
    cost: Fraction | None


@dataclass(frozen=True)
class Expected:
    """Holds what was estimated of some trainings, and what those took."""

    jobs: int
    node_time: int
    """Microseconds of machines, estimated."""
    actual: int
    """Microseconds of machines that were held."""
    cost: Fraction | None
    """Estimated, at the price of their machines."""

    @property
    def off_by(self) -> float | None:
        """0.1: it took a tenth more than estimated."""
        return self.actual / self.node_time - 1 if self.node_time else None


@dataclass(frozen=True)
class Line:
    """One line of the bill: a group of jobs, their machine time and their price."""

    name: str
    jobs: int
    attempts: int
    split: Split
    costs: Mapping[Part, Fraction | None]
    """The cost of what was held, by what it was used for."""
    bought: Mapping[PriceClass, Bought]
    """Those that there are."""
    unpriced: int
    """Microseconds of held machines whose price is not known."""
    moved_bytes: int
    """To the object store and from it."""
    transfer: Fraction | None
    checkpoint_bytes: int
    """That were written; most of them are gone again."""
    expected: Expected | None
    """None: of none of its trainings could anything be said before."""

    @property
    def node_time(self) -> int:
        """Microseconds of machines from asking for them to their end, queued ones too."""
        return sum(self.split.values())

    @property
    def gpu_time(self) -> int:
        return sum(one.gpu_time for one in self.bought.values())

    @property
    def machines(self) -> Fraction | None:
        """Return what they cost."""
        return added(one.cost for one in self.bought.values())

    @property
    def cost(self) -> Fraction | None:
        """The cost of machines and transfer."""
        return added([self.machines, self.transfer if self.moved_bytes else None])


def bill(jobs: Sequence[Job], by: By, estimates: Mapping[str, TimeEstimate]) -> tuple[Line, ...]:
    """The lines, those of months in their order, others the dearest or longest first."""
    groups: dict[str, list[tuple[Job, Use]]] = {}
    for job in jobs:
        for use in job.uses:
            groups.setdefault(group(job, use, by), []).append((job, use))
    lines = [line(name, members, estimates) for name, members in groups.items()]
    if by == "month":
        return tuple(sorted(lines, key=lambda one: one.name))
    order = sorted(lines, key=lambda one: (one.cost or 0, one.node_time, one.name), reverse=True)
    return tuple(order)


def whole(jobs: Sequence[Job], estimates: Mapping[str, TimeEstimate]) -> Line:
    """All of them in one line."""
    return line("total", [(job, use) for job in jobs for use in job.uses], estimates)


def line(
    name: str, members: Sequence[tuple[Job, Use]], estimates: Mapping[str, TimeEstimate]
) -> Line:
    """The sum of some attempts."""
    uses = [use for _, use in members]
    bought: dict[PriceClass, Bought] = {
        one: found for one in PRICE_CLASSES if (found := _bought(one, uses)).node_time
    }
    return Line(
        name=name,
        jobs=len({job.name for job, _ in members}),
        attempts=len(uses),
        split=total([use.split for use in uses]),
        costs={
            part: added(of_time(use.split[part], use.node_hour) for use in uses) for part in PAID
        },
        bought=bought,
        unpriced=sum(use.paid for use in uses if use.node_hour is None),
        moved_bytes=sum(use.usage.moved_bytes for use in uses),
        transfer=added(use.transfer for use in uses),
        checkpoint_bytes=sum(use.usage.checkpoint_bytes for use in uses),
        expected=_expected(members, estimates),
    )


def group(job: Job, use: Use, by: By) -> str:
    """The line that an attempt is in."""
    match by:
        case "pipeline":
            return job.pipeline
        case "owner":
            return job.owner
        case "job":
            return job.name
        case "month":
            return f"{use.usage.held.created:%Y-%m}"


def _bought(price_class: PriceClass, uses: Sequence[Use]) -> Bought:
    own = [use for use in uses if use.usage.held.price_class == price_class]
    return Bought(
        node_time=sum(use.paid for use in own),
        gpu_time=sum(use.paid * use.usage.held.gpus_per_node for use in own),
        cost=added(use.cost for use in own),
    )


def _expected(
    members: Sequence[tuple[Job, Use]], estimates: Mapping[str, TimeEstimate]
) -> Expected | None:
    """Whole jobs: one that ran over the end of a month counts in that in which it began."""
    begun = [job for job, use in members if job.name in estimates and use is job.uses[0]]
    if not begun:
        return None
    return Expected(
        jobs=len(begun),
        node_time=sum(estimates[job.name].node_time for job in begun),
        actual=sum(job.paid for job in begun),
        cost=added(of_time(estimates[job.name].node_time, job.uses[0].node_hour) for job in begun),
    )


def share(split: Split, part: Part) -> float:
    """The share of all node-time; 0 where there is none."""
    time = sum(split[one] for one in PARTS)
    return split[part] / time if time else 0.0


NO_JOB = "no job yet"
"""The line of the data steps that no training has used yet."""


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
        """Return what those bytes cost in a month, by the price of a GB; None: not known."""
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
