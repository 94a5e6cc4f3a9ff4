"""Counts how many of the automatic runs ended well.

A piece of work is what a schedule or a sensor asked for, with all attempts at it. It ends well with
a success or with a model that a gate refused. It does not with a failure or a missed tick.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from ml_assets.adapters.runs import (
    PIPELINE_TAG,
    Run,
    RunEvent,
    StoredRun,
    runs_asked_for,
    step_failures,
)
from ml_assets.adapters.step import Instance
from ml_assets.automation.schedules import cron_of, due_times, last_look
from ml_assets.spec.base import Frozen
from ml_assets.spec.pipeline import PipelineSpec

End = Literal["well", "refused", "failed", "missed"]
GOOD: tuple[End, ...] = ("well", "refused")


class UnattendedWork(Frozen):
    """A piece of work that was to run by itself, and how it ended."""

    pipeline: str
    asked_by: str
    """The schedule or the sensor."""
    what: str
    time: datetime
    """When it was first asked for, or was due."""
    end: End
    cause: str
    """Why it ended so; empty where it ended well at the first try."""
    runs: tuple[str, ...]
    """All that were tried for it, oldest first."""


class Reliability(Frozen):
    """Holds what ended well of all that was to run."""

    pipeline: str
    since: datetime
    work: tuple[UnattendedWork, ...]
    """What has ended, in the order of time."""
    under_way: int

    @property
    def well(self) -> int:
        return sum(1 for work in self.work if work.end in GOOD)

    @property
    def share(self) -> float | None:
        """Between 0 and 1; None: nothing was to run."""
        return self.well / len(self.work) if self.work else None

    @property
    def causes(self) -> tuple[tuple[str, int], ...]:
        """Return why work did not end well, and how often; the most frequent first."""
        counted = Counter(work.cause for work in self.work if work.end not in GOOD)
        return tuple(counted.most_common())


def reliability(
    spec: PipelineSpec, instance: Instance, since: datetime, now: datetime
) -> Reliability:
    """Return what a pipeline's schedules and sensors asked for since then, and how it ended."""
    records = runs_asked_for(instance, spec.name, since)
    by_itself = [r for r in records if _asked_by(r.dagster_run)]
    pieces = list(_pieces(instance, by_itself))
    ended = [w for w in (_ended(spec.name, instance, piece) for piece in pieces) if w is not None]
    missed = list(_missed(spec, instance, since, now))
    return Reliability(
        pipeline=spec.name,
        since=since,
        work=tuple(sorted([*ended, *missed], key=lambda work: work.time)),
        under_way=len(pieces) - len(ended),
    )


# --- pieces of work: what was tried for the same thing --------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """What a run was asked to make: a retry of it, by whoever, is asked to make the same."""

    by: str
    job: str
    what: str
    due: str
    """The tick of a schedule: each is asked for what it finds. Empty for a sensor, which asks for
    the same thing until it is made."""
    partitions: tuple[str | None, ...]


def _pieces(instance: Instance, records: Sequence[StoredRun]) -> Iterator[list[StoredRun]]:
    """Runs that tried the same thing until one ended well; records are oldest first."""
    roots: dict[str, list[StoredRun]] = {}
    open_pieces: dict[_Asked, list[StoredRun]] = {}
    found: list[list[StoredRun]] = []
    for record in records:
        run = record.dagster_run
        root, asked = run.tags.get("dagster/root_run_id", run.run_id), _asked(run)
        hindered = run.tags.get("dagster/run_key", "")  # of a refresh: the one that it repeats
        piece = roots.get(root) or roots.get(hindered) or open_pieces.get(asked)
        if piece is None or _end_of(instance, piece[-1].dagster_run)[0] in GOOD:
            piece = []
            found.append(piece)
        piece.append(record)
        roots[root] = roots[run.run_id] = open_pieces[asked] = piece
    yield from found


_WHAT = r"[^:\[]*(\[[^\]]*\])?"
"""``sources [2024-01-15]``: a candidate run without its reason, which may change between tries."""


def _asked(run: Run) -> _Asked:
    ends = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
    partitions = tuple(run.tags.get(tag) for tag in ends)
    due = run.tags.get(".dagster/scheduled_execution_time", "")
    what = re.match(_WHAT, run.tags.get("why", ""))
    return _Asked(_asked_by(run), run.job_name, what[0] if what else "", due, partitions)


def _asked_by(run: Run) -> str:
    """The schedule or sensor; empty for a person."""
    return run.tags.get("dagster/schedule_name") or run.tags.get("dagster/sensor_name") or ""


def _ended(pipeline: str, instance: Instance, piece: Sequence[StoredRun]) -> UnattendedWork | None:
    """None while it is under way."""
    last = piece[-1].dagster_run
    if not last.is_finished:
        return None
    end, cause = _end_of(instance, last)
    if end == "well" and len(piece) > 1:
        before = _end_of(instance, piece[-2].dagster_run)[1]
        cause = f"at try {len(piece)}: {before}"
    return UnattendedWork(
        pipeline=pipeline,
        asked_by=_asked_by(piece[0].dagster_run),
        what=last.tags.get("why") or last.job_name,
        time=piece[0].create_timestamp.astimezone(UTC),
        end=end,
        cause=cause,
        runs=tuple(record.dagster_run.run_id for record in piece),
    )


# --- causes ---------------------------------------------------------------------------------------

_REFUSED = {"RefusedByGate", "EvidenceError"}
_JUDGES = ("gates", "canary")
"""Steps of a pipeline that end with a failed check where a gate refused."""
_CHECK_FAILED = "DagsterAssetCheckFailedError"


def _end_of(instance: Instance, run: Run) -> tuple[End, str]:
    """How a run ended, and why where it did not succeed."""
    if run.is_success:
        return "well", ""
    if run.status.value == "CANCELED":
        return "failed", "it was cancelled"
    events = step_failures(instance, run)
    if not events:
        return "failed", "its process died or never started"
    causes = [(event.step_key or "", _root(event)) for event in events]
    judges = [f"{run.tags.get(PIPELINE_TAG)}__{judge}" for judge in _JUDGES]
    if any(name in _REFUSED or (name == _CHECK_FAILED and step in judges) for step, name in causes):
        return "refused", "refused by a gate"
    step, name = causes[0]
    what = "a check failed" if name == _CHECK_FAILED else _in_words(name)
    return "failed", f"{what} in {step.partition('__')[2] or step}"


def _root(event: RunEvent) -> str:
    """The name of the error that began it: the innermost of a chain."""
    error = event.step_failure_data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return (error.cls_name or "") if error else ""


def _in_words(name: str) -> str:
    """``DataRejected`` -> data rejected."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower() or "no reason was given"


# --- ticks that never came ------------------------------------------------------------------------


def _missed(
    spec: PipelineSpec, instance: Instance, since: datetime, now: datetime
) -> Iterator[UnattendedWork]:
    """Times at which the refresh was due and was not evaluated, or could not be."""
    declared = spec.automation.refresh
    name = f"{spec.name}__refresh_schedule"
    states = [s for s in instance.all_instigator_state() if s.instigator_name == name]
    if declared is None or not states or not states[0].is_running:
        return
    begun = getattr(states[0].instigator_data, "start_timestamp", None)
    if begun is None:
        return
    kept = instance.get_tick_retention_settings(states[0].instigator_type).values()
    from_then = max(datetime.fromtimestamp(begun, UTC), since, _kept_since(kept, now))
    zone = declared.timezone or spec.partitions.timezone
    last = now - spec.automation.start_within
    found = _misses(instance, states[0], cron_of(declared), zone, from_then, last)
    for at, why in sorted(found.items()):
        yield UnattendedWork(
            pipeline=spec.name,
            asked_by=name,
            what="refresh",
            time=datetime.fromtimestamp(at, UTC),
            end="missed",
            cause=why,
            runs=(),
        )


def _misses(
    instance: Instance, state: Any, cron: str, zone: str, since: datetime, until: datetime
) -> dict[float, str]:
    """When a schedule asked for nothing though it was due -> why.

    Dagster keeps no past of a schedule. Of one that was edited nobody knows when it was due before
    its last evaluation.
    """
    ticks = instance.get_ticks(
        state.instigator_origin_id,
        state.selector_id,
        after=since.timestamp() - _INSTANT,
        before=until.timestamp() + _INSTANT,
    )
    due = {time.timestamp() for time in due_times(cron, zone, since, until)}
    came = {tick.timestamp for tick in ticks}
    failed = {
        tick.timestamp: f"it could not be evaluated: {tick.error.message.strip()}"
        for tick in ticks
        if tick.is_failure and tick.error
    }
    edited = state.instigator_data.cron_schedule != cron or not came <= due
    known_from = last_look(instance, state) if edited else 0.0
    return failed | {at: _NO_DAEMON for at in due - came if at > known_from}


def _kept_since(days: Iterable[int], now: datetime) -> datetime:
    """A tick before then may have come: the daemon has purged its record (``retention``)."""
    purged = [kept for kept in days if kept >= 0]  # -1: kept for ever
    return now - timedelta(days=min(purged)) if purged else datetime.min.replace(tzinfo=UTC)


_INSTANT = 0.001
"""Seconds: both ends count."""
_NO_DAEMON = "its tick never came: Dagster's daemon was not running"
