"""The whole account: usage and its cost, the content of the stores, and the forecast."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ml_assets.assets.trained_model.cost.jobs import Job, jobs_of
from ml_assets.assets.trained_model.cost.money import added, of_bytes, of_time
from ml_assets.automation.housekeeping.inventory import objects
from ml_assets.automation.housekeeping.inventory_s3 import objects_on_s3
from ml_assets.automation.housekeeping.retention import Thing
from ml_assets.automation.schedules import due_times
from ml_assets.errors import StoreAway
from ml_assets.extras.cost.bill import NO_JOB, By, Line, Share, bill, group, shares, together, whole
from ml_assets.extras.cost.estimate import TimeEstimate, estimate, estimated, planned_steps
from ml_assets.records.data_steps import data_steps
from ml_assets.records.experiments import folder_of, read
from ml_assets.settings import Settings, price_class
from ml_assets.spec.automation import cron_expression
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.s3.objects import S3Objects
from ml_assets.store.snapshots import MAIN

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


_IN_SNAPSHOTS = ("tables", "records", "ledger", "experiments", "quarantine")
"""``<kind>/<pipeline>/...``; what only older states of ``main`` hold: see `ml-assets ops gc`."""


@dataclass(frozen=True)
class Stored:
    """Bytes by pipeline and kind, and those of sessions."""

    by_pipeline: Mapping[str, Mapping[str, int]]
    by_job: Mapping[str, int]
    """A session's events, checkpoints and model."""
    left_out: str = ""
    """What could not be looked at, and why."""

    def of(self, pipeline: str) -> int:
        return sum(self.by_pipeline.get(pipeline, {}).values())


@dataclass
class _Counts:
    by_pipeline: dict[str, Counter[str]] = field(default_factory=dict)
    by_job: Counter[str] = field(default_factory=Counter)

    def add(self, pipeline: str, kind: str, size: int) -> None:
        self.by_pipeline.setdefault(pipeline, Counter())[kind] += size


def stored(pipeline: Pipeline, kept_at: str | None) -> Stored:
    """Everything that lies in the stores of a pipeline now, of every pipeline there.

    Args:
        kept_at: the place that holds the checkpoints of every session; None: beside each.
    """
    counts = _Counts()
    things, left_out = _things(pipeline, kept_at)
    for thing in things:
        _count(thing, counts)
    for entry in pipeline.store.list(pipeline.store.resolve(MAIN)):
        kind, _, rest = entry.path.partition("/")
        if kind in _IN_SNAPSHOTS:
            counts.add(rest.partition("/")[0], kind, entry.size)
    return Stored(counts.by_pipeline, counts.by_job, left_out)


def _things(pipeline: Pipeline, kept_at: str | None) -> tuple[Sequence[Thing], str]:
    """What lies in the object store, and what of it cannot be told now: on S3 what lies there, not
    what this machine has fetched of it."""
    try:
        if isinstance(pipeline.objects, S3Objects):
            return objects_on_s3(pipeline.objects, kept_at), ""
        return objects(pipeline.objects, pipeline.scratch, kept_at), ""
    except StoreAway as error:
        if isinstance(pipeline.objects, S3Objects):
            return [], f"objects: {error}"
        return objects(pipeline.objects, pipeline.scratch), f"checkpoints: {error}"


def _count(thing: Thing, counts: _Counts) -> None:
    """Whose a thing is; scratch is nobody's."""
    session = _session(thing)
    if session is not None:
        counts.by_job[session] += thing.bytes
        counts.add(session.rsplit("-", 2)[0], thing.kind, thing.bytes)
    elif thing.kind in ("shards", "reports") and thing.path is not None:
        counts.add(thing.path.parent.name, thing.kind, thing.bytes)


def _session(thing: Thing) -> str | None:
    """The session that a thing is of: itself, its checkpoints, or the model that it made."""
    if thing.kind == "sessions":
        return thing.name
    if thing.kind == "checkpoints":
        return thing.name.partition("/")[0]
    if thing.kind == "models":
        return next((name for name in thing.needs if len(name.rsplit("-", 2)) == 3), None)
    return None


@dataclass(frozen=True)
class Outlook:
    """Holds what lies there because of a pipeline, and what its next training and year take."""

    pipeline: str
    stored: Mapping[str, int]
    """Bytes by kind."""
    storage: Fraction | None
    """The price of those for a month."""
    next: TimeEstimate | None
    """The next training by the present spec; None: none has come to a result yet."""
    next_cost: Fraction | None
    year: Projection | None

    @property
    def bytes(self) -> int:
        return sum(self.stored.values())


@dataclass(frozen=True)
class Account:
    by: By
    lines: tuple[Line, ...]
    total: Line
    outlooks: tuple[Outlook, ...]
    shares: Mapping[str, Share]
    """Line, ``total`` and, where something is left, ``NO_JOB`` -> data steps and bytes."""
    storage: Decimal | None
    """Price of a GB for a month."""
    by_job: Mapping[str, int]
    """Bytes that a job's events, checkpoints and model take now."""
    left_out: str
    """What could not be looked at, and why; empty: nothing."""


def account(places: Sequence[Pipeline], settings: Settings, by: By, now: datetime) -> Account:
    """The account of some pipelines.

    Raises:
        StorageError: a record cannot be read.
    """
    jobs = {pipeline.name: jobs_of(pipeline, settings.prices) for pipeline in places}
    estimates = {k: v for own in jobs.values() for k, v in estimated(own).items()}
    lying = stored(places[0], settings.checkpoints) if places else Stored({}, {})
    every = [job for own in jobs.values() for job in own]
    owed = {
        pipeline.name: shares(
            jobs[pipeline.name],
            data_steps(pipeline.store, pipeline.name, settings.prices),
            lying.by_job,
            lying.of(pipeline.name),
        )
        for pipeline in places
    }
    return Account(
        by=by,
        lines=bill(every, by, estimates),
        total=whole(every, estimates),
        outlooks=tuple(
            _outlook(pipeline, jobs[pipeline.name], lying, settings, now) for pipeline in places
        ),
        shares=_by_line(every, by, owed.values()),
        storage=settings.prices.storage,
        by_job=lying.by_job,
        left_out=lying.left_out,
    )


def _by_line(
    jobs: Sequence[Job], by: By, owed: Iterable[Mapping[str, Share]]
) -> Mapping[str, Share]:
    """The shares of jobs as those of the lines that they begin in."""
    line_of = {job.name: group(job, job.uses[0], by) for job in jobs}
    found: dict[str, list[Share]] = {}
    for pipeline in owed:
        for name, share in pipeline.items():
            found.setdefault(line_of.get(name, NO_JOB), []).append(share)
    lines = {name: together(parts) for name, parts in found.items()}
    return {**lines, "total": together(list(lines.values()))}


def _outlook(
    pipeline: Pipeline, jobs: Sequence[Job], lying: Stored, settings: Settings, now: datetime
) -> Outlook:
    coming, cost = _next(pipeline, jobs, settings)
    return Outlook(
        pipeline=pipeline.name,
        stored=lying.by_pipeline.get(pipeline.name, {}),
        storage=of_bytes(lying.of(pipeline.name), settings.prices.storage),
        next=coming,
        next_cost=cost,
        year=projection(pipeline.spec, jobs, now),
    )


def _next(
    pipeline: Pipeline, jobs: Sequence[Job], settings: Settings
) -> tuple[TimeEstimate | None, Fraction | None]:
    """The next training, on machines like those of the last one."""
    done = [job for job in jobs if job.verb == "train" and job.done]
    last = done[-1].uses[-1].usage if done else None
    if last is None or last.steps is None:
        return None, None
    coming = estimate(planned_steps(last.steps, _spec_of(pipeline, done[-1]), pipeline.spec), done)
    if coming is None:
        return None, None
    bought = price_class(pipeline.spec.training.spot is not None)
    hour = settings.prices.node_hour(bought, last.held.gpus_per_node)
    return coming, of_time(coming.node_time, hour)


def _spec_of(pipeline: Pipeline, job: Job) -> Mapping[str, Any]:
    """That a job ran by; empty where nobody wrote it down."""
    folder = folder_of(pipeline.store, pipeline.name, job.run) if job.run else None
    if folder is None:
        return {}
    begun = read(pipeline.store, pipeline.store.resolve(MAIN), folder).begun
    return begun.config if begun else {}
