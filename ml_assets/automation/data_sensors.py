"""The ticks of the data sensors: what has arrived in the sources, and code that differs.

Both look at the state of the store at every tick and ask for one step of the walk at a time:
sources, derived tables, features, then the model. They ask for nothing while a run is at work.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import dagster as dg

from ml_assets.adapters.runs import (
    UNENDED,
    living_runs,
    name_of,
)
from ml_assets.assets.raw_snapshot.asset import STAGE as RAW
from ml_assets.assets.raw_snapshot.sources import Sources
from ml_assets.automation.jobs import AssetJob, PipelineJobs
from ml_assets.automation.planner.candidate_runs import (
    CANARY,
    DRIFT,
    MODEL,
    CandidateRun,
    Records,
    before_the_model,
    data_candidates,
    model_candidate,
)
from ml_assets.automation.planner.graph_nodes import (
    data_nodes,
    left_as_read,
    plan_data,
    published,
    receipts_published,
    records_by_address,
)
from ml_assets.automation.planner.landed import Landed, calendar, landed
from ml_assets.automation.planner.plan import Plan, plan
from ml_assets.automation.run_requests import Cursor, requests, sort_out
from ml_assets.automation.tick_failures import why_not
from ml_assets.errors import MlAssetsError, StoreAway, counted
from ml_assets.records.data_failures import failed_partitions, forget_failures
from ml_assets.spec.stages import DATA_STAGES
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline


@dataclass(frozen=True)
class Watch:
    """Holds what one sensor looks at."""

    trigger: str
    seen: str
    """What it looked at, in words: the beginning of every reason to skip."""
    data: Plan
    model: Callable[[], CandidateRun | str]
    """The model where it is due, else why not; asked only when no data is to be made first."""
    away: StoreAway | None = None
    """The online store does not answer: it keeps nothing back, and is told."""


Look = Callable[[Pipeline, Sources, Records], Watch]


def landing(pipeline: Pipeline, sources: Sources, records: Records) -> Watch:
    """Partitions whose sources hold something else than what is published, whatever the code.

    Raises:
        SourceError: a source cannot be read.
    """
    arrived = landed(pipeline, sources, records)
    declared = pipeline.spec.automation.landing

    def model() -> CandidateRun | str:
        if not declared or not declared.retrain:
            return ""
        if not arrived.is_all:
            return "the model waits until each partition has been checked"
        return model_candidate(pipeline, records, as_of=None, data_only=True)

    found, away = plan_data(pipeline, arrived, records, data_only=True)
    if arrived.is_all and not found.due:
        _forget_what_passed(pipeline, arrived, records)
    return Watch("landing", _in_words(pipeline, arrived), found, model, away)


def _forget_what_passed(pipeline: Pipeline, arrived: Landed, records: Records) -> None:
    """Take back the failures of stages of which nothing is due, whether its data changed or its
    code: a source may be again what it was before it failed."""
    if not failed_partitions(pipeline.now()):
        return
    found, _ = plan_data(pipeline, arrived, records)
    due = {item.node.address.stage for item in found.due}
    forget_failures(pipeline.store, pipeline.name, {*DATA_STAGES} - due)


def code_change(pipeline: Pipeline, sources: Sources, records: Records) -> Watch:
    """Return what is published and would now be made otherwise from the same receipts."""
    nodes = data_nodes(
        pipeline, published(pipeline, records), receipts_published(pipeline, records)
    )
    new = {*pipeline.spec.tables} - {a.source for a in records if a.stage == "derived_table"}
    made = [node for node in nodes if node.address in records or node.address.source in new]
    training_set = records.get(Address(pipeline.name, "training_set"))

    def model() -> CandidateRun | str:
        if training_set is None:
            return "no model is made yet"
        as_of = training_set.attributes["as_of"]
        return model_candidate(pipeline, records, as_of=as_of, data_only=False)

    seen = (
        f"{counted(len(made), 'published table')} of {pipeline.name} compared with the present"
        " code and spec"
    )
    found = plan(made, records)
    if any(item.node.address.stage == RAW for item in found.due):
        there = landed(pipeline, sources, records)
        found = plan(left_as_read(there, made, records), records)
    return Watch("code change", seen, found, model)


LOOKS: Mapping[str, Look] = MappingProxyType({"landing": landing, "code_change": code_change})
"""Sensor -> what it looks at."""


def tick(
    pipeline: Pipeline,
    jobs: PipelineJobs,
    look: Look,
    instance: dg.DagsterInstance,
    sources: Sources,
    text: str | None,
) -> dg.SensorResult:
    """One evaluation: run requests, or one sentence that says why there are none.

    Args:
        text: the cursor of the tick before.
    """
    busy = at_work(instance, pipeline)
    if busy:
        return skip(busy, text)
    try:
        records = records_by_address(pipeline.store, pipeline.name)
        watch = look(pipeline, sources, records)
        asked = _ask(pipeline, jobs, instance, records, watch, _between(pipeline, jobs), text)
        if watch.away and not asked.run_requests:
            return skip(why_not(watch.away), asked.cursor)
        return asked
    except MlAssetsError as error:
        return skip(why_not(error), text)


def at_work(instance: dg.DagsterInstance, pipeline: Pipeline) -> str:
    """The run that is at work on the pipeline, in words; empty where there is none."""
    busy = living_runs(instance, pipeline.name, UNENDED)
    return f"{name_of(busy[0].dagster_run)} is working on {pipeline.name}" if busy else ""


Step = tuple[AssetJob, CandidateRun | str]
"""A job, and the candidate that it is for; else why there is none, in words."""


def _between(pipeline: Pipeline, jobs: PipelineJobs) -> Iterator[Step]:
    """Yield what is asked for when the data is made, and before the model is made again.

    Each is looked for when it is asked for: what a recall reached holds up no data.
    """
    job_of = {DRIFT: jobs.drift, CANARY: jobs.promote}
    for place, step in before_the_model(pipeline):
        if job := job_of[place]:
            yield job, step


def _ask(
    pipeline: Pipeline,
    jobs: PipelineJobs,
    instance: dg.DagsterInstance,
    records: Records,
    watch: Watch,
    between: Iterator[Step],
    text: str | None,
) -> dg.SensorResult:
    steps = [(job, data_candidates(step, watch.data, records)) for step, job in jobs.data]
    data = [candidate for _, candidates in steps for candidate in candidates]
    cursor = Cursor.read(text).keep(
        {MODEL, CANARY, DRIFT, *(candidate.place for candidate in data)}
    )
    held: list[str] = []
    for job, candidates in steps:
        found = sort_out(instance, candidates, cursor)
        held += found.held
        if found.fresh:
            return _request(pipeline, job, watch, found.fresh, cursor)
    for job, step in between:
        found = sort_out(instance, [] if isinstance(step, str) else [step], cursor)
        held += [step] if isinstance(step, str) else found.held
        if found.fresh:
            return _request(pipeline, job, watch, found.fresh, cursor)
    candidate = watch.model()
    if isinstance(candidate, str):
        cursor = cursor.keep({CANARY, DRIFT, *(candidate.place for candidate in data)})
        settled = "" if data else "everything that landed is published"
        return skip("; ".join(filter(None, [watch.seen, *held, settled, candidate])), cursor.text)
    found = sort_out(instance, [candidate], cursor)
    if found.fresh:
        return _request(pipeline, jobs.refresh, watch, found.fresh, cursor)
    return skip("; ".join([watch.seen, *held, *found.held]), cursor.text)


def _request(
    pipeline: Pipeline,
    job: AssetJob,
    watch: Watch,
    fresh: tuple[tuple[CandidateRun, int], ...],
    cursor: Cursor,
) -> dg.SensorResult:
    found, cursor = requests(pipeline, job, watch.trigger, fresh, calendar(pipeline), cursor)
    return dg.SensorResult(run_requests=found, cursor=cursor.text)


def skip(reason: str, text: str | None) -> dg.SensorResult:
    """A tick that asks for nothing, and says why."""
    return dg.SensorResult(skip_reason=f"{reason}.", cursor=text)


def _in_words(pipeline: Pipeline, arrived: Landed) -> str:
    as_read = frozenset(arrived.as_read)
    there = [key for key in arrived.keys if key not in as_read]
    span = "no partition"
    if there:
        span = f"{counted(len(there), 'partition')} ({there[0]} to {there[-1]})"
    said = [f"{span if arrived.keys else 'all that'} landed in the sources of {pipeline.name}"]
    if as_read:
        said.append(f"{len(as_read)} more stay as they were last read")
    return "; ".join([*said, *arrived.waiting])
