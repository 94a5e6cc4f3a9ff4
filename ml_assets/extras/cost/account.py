"""The whole account: what was used and what it cost, what lies there, and what is to come."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ml_assets.assets.trained_model.cost.jobs import Job, jobs_of
from ml_assets.assets.trained_model.cost.money import of_bytes, of_time
from ml_assets.extras.cost.bill import By, Line, bill, group, whole
from ml_assets.extras.cost.estimate import Estimate, estimate, estimated, planned_steps
from ml_assets.extras.cost.projection import Projection, projection
from ml_assets.extras.cost.shares import NO_JOB, Share, shares, together
from ml_assets.extras.cost.stored import Stored, stored
from ml_assets.records.data_steps import data_steps
from ml_assets.records.run_folders import folder_of, read
from ml_assets.settings import Settings, price_class
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import MAIN


@dataclass(frozen=True)
class Outlook:
    """What lies there because of a pipeline, and what its next training and its year will take."""

    pipeline: str
    stored: Mapping[str, int]
    """Bytes by kind."""
    storage: Fraction | None
    """The price of those for a month."""
    next: Estimate | None
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
) -> tuple[Estimate | None, Fraction | None]:
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
