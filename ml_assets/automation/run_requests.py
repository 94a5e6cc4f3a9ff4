"""Turns candidate runs into run requests: each is made once, and a failed one waits for a change.

One whose process died, or that was not begun because others failed before it, is asked for again:
twice at once, then each time after a longer wait. So is one that a store, a cluster or a full disk
hindered, after a wait from the first time on.

The cursor holds requests that are still due; a fulfilled one is forgotten, so that the same request
may be made again. Losing the cursor costs one repeated attempt, no more.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg
from pydantic import Field, ValidationError

from ml_assets.adapters.runs import (
    PIPELINE_TAG,
    UNENDED,
    Selection,
    ended_at,
    living_runs,
    name_of,
    step_failures,
)
from ml_assets.automation.jobs import AssetJob, run_tags
from ml_assets.automation.planner.candidate_runs import CandidateRun
from ml_assets.automation.planner.selection import data_runs
from ml_assets.errors import PASSES, counted
from ml_assets.spec.base import Frozen, digest_of
from ml_assets.store.pipeline_context import Pipeline

RUN_KEY_TAG = "dagster/run_key"
WANTED_TAG = "ml_assets/wanted"
"""What a schedule's candidate, or a study, would be made from."""
MAX_RETRIES_TAG = "dagster/max_retries"
"""Of a run with a key: 0. Its sensor asks for it again; Dagster would do so beside it."""
ATTEMPTS = 3
"""A run is asked for so often at once: its process died, or others failed in it before it began."""
FIRST_WAIT, LONGEST_WAIT = timedelta(minutes=1), timedelta(hours=1)
"""After that; each wait is twice the one before."""
_NOT_BEGUN = "not begun"
_OUTSIDE = frozenset({_NOT_BEGUN, "DagsterExecutionInterruptedError", "OperationalError"})
"""What became of a step that was not begun or told to end, or that lost Dagster's own database."""
_PASSES = frozenset(error.__name__ for error in PASSES)
_WRAPPERS = frozenset({"DagsterExecutionStepExecutionError", "Failure"})


class RequestedRun(Frozen):
    """A candidate that was asked for and is still due."""

    wanted: str
    run_key: str
    attempt: int = 1


class Cursor(Frozen):
    """Place of a candidate -> what was asked for."""

    asked: dict[str, RequestedRun] = Field(default_factory=dict)

    @classmethod
    def read(cls, text: str | None) -> "Cursor":
        """The cursor of the last tick; empty where there is none, or it is of another version."""
        try:
            return cls.model_validate_json(text) if text else cls()
        except ValidationError:
            return cls()

    @property
    def text(self) -> str:
        """The cursor as the text that Dagster stores."""
        return self.model_dump_json()

    def keep(self, places: Set[str]) -> "Cursor":
        """Only what is still due: the rest came true."""
        return Cursor(asked={p: asked for p, asked in self.asked.items() if p in places})


@dataclass(frozen=True)
class Sorted:
    """Candidate runs to ask for now (with the number of the attempt), and why others are not."""

    fresh: tuple[tuple[CandidateRun, int], ...]
    held: tuple[str, ...]


def sort_out(
    instance: dg.DagsterInstance, candidates: Sequence[CandidateRun], cursor: Cursor
) -> Sorted:
    """Return which candidates are new, changed, or lost with the process that worked on them."""
    fresh: list[tuple[CandidateRun, int]] = []
    held: dict[str, list[CandidateRun]] = {}
    waiting = {one.place: asked for one in candidates if (asked := _asked(one, cursor))}
    ended = _ended(instance, [asked.run_key for asked in waiting.values()])
    for candidate in candidates:
        asked = waiting.get(candidate.place)
        if asked is None:
            fresh.append((candidate, 1))
            continue
        end = ended.get(asked.run_key)
        if end is None:
            fresh.append((candidate, asked.attempt))
            continue
        wait = _wait(end, candidate, asked.attempt)
        if wait is not None and wait <= timedelta():
            fresh.append((candidate, asked.attempt + 1))
        else:
            why = _why_held(end.run)
            if wait is not None:
                why = _why_waits(end, candidate, asked.attempt, wait)
            held.setdefault(why, []).append(candidate)
    return Sorted(tuple(fresh), tuple(f"{_places(ones)} {why}" for why, ones in held.items()))


def _asked(candidate: CandidateRun, cursor: Cursor) -> RequestedRun | None:
    """What was asked for as it would be now; None: the candidate is new, or has changed."""
    asked = cursor.asked.get(candidate.place)
    return asked if asked and asked.wanted == candidate.wanted else None


def _places(candidates: Sequence[CandidateRun]) -> str:
    return span(candidates) if len(candidates) > 1 else candidates[0].place


def requests(
    pipeline: Pipeline,
    job: AssetJob,
    trigger: str,
    fresh: Sequence[tuple[CandidateRun, int]],
    order: Sequence[str],
    cursor: Cursor,
) -> tuple[list[dg.RunRequest], Cursor]:
    """One run request per range of partitions without a gap (or for the model), and the cursor.

    On a cluster there is one for each partition: they are made side by side, each in its own pod.
    """
    asked = dict(cursor.asked)
    found: list[dg.RunRequest] = []
    for selection, group in _runs(pipeline, fresh, order):
        candidates = [candidate for candidate, _ in group]
        attempt = max(number for _, number in group)
        run_key = digest_of([[c.place, c.wanted, c.replaces] for c in candidates] + [attempt])[:32]
        found.append(run_request(pipeline, trigger, candidates, selection, job.name, run_key))
        for candidate in candidates:
            asked[candidate.place] = RequestedRun(
                wanted=candidate.wanted, run_key=run_key, attempt=attempt
            )
    return found, Cursor(asked=asked)


def run_request(
    pipeline: Pipeline,
    trigger: str,
    candidates: Sequence[CandidateRun],
    selection: Selection,
    job_name: str | None = None,
    run_key: str | None = None,
) -> dg.RunRequest:
    """One run that makes a selection for candidates; its tags tell why.

    Args:
        job_name: None: the one job of a schedule.
        run_key: what Dagster starts once; None: each time that it is asked for.
    """
    model = candidates[0].model
    why = f"{span(candidates)}: {candidates[0].reason}"
    retries = {} if run_key is None else {MAX_RETRIES_TAG: "0"}
    return dg.RunRequest(
        run_key=run_key,
        job_name=job_name,
        asset_selection=list(selection.assets),
        asset_check_keys=None if selection.checks is None else list(selection.checks),
        run_config=dict(model.config) if model else {},
        tags=run_tags(pipeline, trigger, {"why": why, **retries, **selection.tags}),
    )


def asked_once(
    instance: dg.DagsterInstance, pipeline: Pipeline, found: dg.RunRequest | dg.SkipReason
) -> dg.RunRequest | dg.SkipReason:
    """The run that a schedule asks for, unless one for the same waits or is at work already.

    It would find all made, and publish and judge it a second time.
    """
    wanted = found.tags.get(WANTED_TAG) if isinstance(found, dg.RunRequest) else None
    if wanted is None:
        return found
    for run in (record.dagster_run for record in living_runs(instance, pipeline.name, UNENDED)):
        if run.tags.get(WANTED_TAG) == wanted:
            return dg.SkipReason(f"{name_of(run)} already makes the same for {pipeline.name}.")
    return found


def span(candidates: Sequence[CandidateRun]) -> str:
    """The places of the candidates, as one: ``sources [a .. b: 3 partitions]``, ``model [b]``."""
    first, last, model = candidates[0].place, candidates[-1].partition, candidates[0].model
    if model is not None:
        return f"{first} [{model.as_of or 'all rows'}]"
    if len(candidates) == 1:
        return first
    return f"{first.rstrip(']')} .. {last}: {counted(len(candidates), 'partition')}]"


def _runs(
    pipeline: Pipeline, fresh: Sequence[tuple[CandidateRun, int]], order: Sequence[str]
) -> Iterator[tuple[Selection, list[tuple[CandidateRun, int]]]]:
    """Each run, and the candidates that it is for: the model, or those of its partitions."""
    for one in fresh:
        if one[0].model is not None and one[0].model.selection is not None:
            yield one[0].model.selection, [one]
    data = {one[0].partition: one for one in fresh if one[0].model is None}
    items = [item for candidate, _ in data.values() for item in candidate.items]
    for selection in data_runs(pipeline, items, order, apart=pipeline.on_cluster):
        yield selection, [data[key] for key in _partitions(selection, order)]


def _partitions(selection: Selection, order: Sequence[str]) -> Sequence[str | None]:
    """The partition keys of a selection; None alone where it has no partitions."""
    if selection.partitions is None:
        return [None]
    first, last = selection.partitions
    return order[order.index(first) : order.index(last) + 1]


def records_of(instance: dg.DagsterInstance, run_keys: Sequence[str]) -> dict[str, dg.RunRecord]:
    """Key -> the newest run that was asked for with it, of those that began; in one question."""
    asked = dg.RunsFilter(tags={RUN_KEY_TAG: list(dict.fromkeys(run_keys))})
    records = instance.get_run_records(filters=asked, ascending=True) if run_keys else ()
    return {record.dagster_run.tags[RUN_KEY_TAG]: record for record in records}


_Failures = tuple[tuple[str | None, str | None], ...]
"""Each step that failed in a run, and the class of what it raised."""


@dataclass(frozen=True)
class _Ended:
    """A run, and what failed in it: it is looked up once for all that it was to make."""

    record: dg.RunRecord
    failures: _Failures

    @property
    def run(self) -> dg.DagsterRun:
        return self.record.dagster_run

    def causes(self, candidate: CandidateRun) -> Set[str | None]:
        """What became of the steps that come next of a candidate: what others of its run failed in
        is not its own. What passes by itself counts alone: each table is made, or fails, by itself.
        """
        failed = dict(self.failures)
        if candidate.model is not None:
            return set(failed.values())
        due = {item.node.address: item.node for item in candidate.items if item.due}
        steps = [one.key.replace("/", "__") for one in due if not due.keys() & due[one].inputs]
        causes = {failed.get(step, _NOT_BEGUN) for step in steps}
        return causes & (_OUTSIDE | _PASSES) or causes


def _ended(instance: dg.DagsterInstance, run_keys: Sequence[str]) -> dict[str, _Ended]:
    """Key -> the run that was asked for with it; none that never began."""
    records = records_of(instance, run_keys)
    return {
        key: _Ended(record, _failures(instance, record.dagster_run))
        for key, record in records.items()
    }


def _wait(end: _Ended, candidate: CandidateRun, attempt: int) -> timedelta | None:
    """How long until a run is asked for again; None: not before something changes."""
    causes = end.causes(candidate)
    if end.run.status != dg.DagsterRunStatus.FAILURE or not causes <= _OUTSIDE | _PASSES:
        return None
    if not causes <= _OUTSIDE:
        return wait_after(end.record, attempt - 1)
    return wait_after(end.record, attempt - ATTEMPTS) if attempt >= ATTEMPTS else timedelta()


def wait_after(record: dg.RunRecord, waits: int) -> timedelta:
    """How long until what a run failed in is asked for again, after so many waits before."""
    wait = min(FIRST_WAIT * 2 ** min(waits, 6), LONGEST_WAIT)
    return ended_at(record) + wait - datetime.now(UTC)


def died(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether the run failed, but no step of it by itself.

    Its process was killed, told to end (as when the UI is closed), lost Dagster's own database, or
    never began.
    """
    return _is_for(run, _failures(instance, run), _OUTSIDE)


def hindered(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether the run failed for what passes by itself: it died, or a store or a disk refused."""
    return _is_for(run, _failures(instance, run), _OUTSIDE | _PASSES)


def _is_for(run: dg.DagsterRun, failures: _Failures, causes: Set[str]) -> bool:
    """Whether the run failed, and each step that failed did for one of these causes."""
    failed = run.status == dg.DagsterRunStatus.FAILURE
    return failed and all(cause in causes for _, cause in failures)


def _failures(instance: dg.DagsterInstance, run: dg.DagsterRun) -> _Failures:
    if run.status != dg.DagsterRunStatus.FAILURE:
        return ()
    return tuple((event.step_key, _cause(event)) for event in step_failures(instance, run))


def _cause(event: dg.DagsterEvent) -> str | None:
    """The class of what the step raised, not of what caused that: a source that is away is an error
    of ours, whatever its database said."""
    error = event.step_failure_data.error
    while error is not None and error.cls_name in _WRAPPERS:
        error = error.cause
    return error.cls_name if error else None


def _why_waits(end: _Ended, candidate: CandidateRun, attempt: int, wait: timedelta) -> str:
    causes = end.causes(candidate)
    how = "died" if causes <= _OUTSIDE else "failed for a temporary cause"
    if end.failures and causes == {_NOT_BEGUN}:
        how = "was not begun"
    again = counted(-(wait // -timedelta(minutes=1)), "minute")
    return (
        f"{how} in run {end.run.run_id[:8]} (attempt {attempt}) and is tried again in {again};"
        f" 'ml-assets run {end.run.tags[PIPELINE_TAG]}' tries again now"
    )


def _why_held(run: dg.DagsterRun) -> str:
    if run.status == dg.DagsterRunStatus.SUCCESS:
        return (
            f"was made by {name_of(run)} with other code or another spec than this UI has read:"
            " click 'Reload definitions' in Deployment"
        )
    ended = "was canceled" if run.status == dg.DagsterRunStatus.CANCELED else "failed"
    return (
        f"{ended} in run {run.run_id[:8]} and waits for its source or its code to change;"
        f" 'ml-assets run {run.tags[PIPELINE_TAG]}' tries again now"
    )
