"""Looks at a pipeline's runs, whoever started them: what each makes, and how it failed."""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
from dagster_shared.error import SerializableErrorInfo

from ml_assets.adapters.resources import PID_TAG
from ml_assets.errors import is_ours

Definitions = dg.Definitions
Run = dg.DagsterRun
StoredRun = dg.RunRecord
RunEvent = dg.DagsterEvent
"""The names by which rooms above know what Dagster keeps of a run."""

PIPELINE_TAG = "pipeline"
TRIGGER_TAG = "trigger"
"""Why a run was started: command line, by hand, landing, code change, schedule."""

AT_WORK = (
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
WAITING = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED)
UNENDED = (*AT_WORK, *WAITING)
_WORKER = "spawn_main"
"""In the command line of every process that Dagster's default launcher starts for a run."""


@dataclass(frozen=True)
class Selection:
    """The selection of assets that one run makes."""

    assets: tuple[dg.AssetKey, ...] = ()
    checks: tuple[dg.AssetCheckKey, ...] | None = None
    """None: every check of the assets."""
    partitions: tuple[str, str] | None = None
    """First and last partition key of a range."""

    @property
    def tags(self) -> dict[str, str]:
        """The tags with which Dagster makes the range in one run."""
        if self.partitions is None:
            return {}
        first, last = self.partitions
        return {
            "dagster/asset_partition_range_start": first,
            "dagster/asset_partition_range_end": last,
        }


def open_instance() -> dg.DagsterInstance:
    """Dagster's instance in the folder that DAGSTER_HOME names; a context that closes it."""
    from ml_assets.adapters.open_databases import read_migrations_once

    read_migrations_once()
    return dg.DagsterInstance.get()


def runs_on(
    instance: dg.DagsterInstance, pipeline: str, statuses: Sequence[dg.DagsterRunStatus]
) -> list[dg.RunRecord]:
    """Runs that make any asset of the pipeline, newest first.

    A run started by hand in the asset graph has no tag: its assets tell.
    """
    records = instance.get_run_records(filters=dg.RunsFilter(statuses=list(statuses)))
    return [record for record in records if _is_on(record.dagster_run, pipeline)]


def living_runs(
    instance: dg.DagsterInstance, pipeline: str, statuses: Sequence[dg.DagsterRunStatus]
) -> list[dg.RunRecord]:
    """The same without those whose process is gone, which are marked as failed."""
    records = runs_on(instance, pipeline, statuses)
    gone = mark_dead(instance, records)
    return [record for record in records if record.dagster_run.run_id not in gone]


def runs_asked_for(
    instance: dg.DagsterInstance, pipeline: str, since: datetime
) -> Sequence[dg.RunRecord]:
    """Runs that ours asked for since then, oldest first, whatever became of them."""
    filters = dg.RunsFilter(tags={PIPELINE_TAG: pipeline}, created_after=since)
    return instance.get_run_records(filters=filters, ascending=True)


def step_failures(instance: dg.DagsterInstance, run: dg.DagsterRun) -> list[dg.DagsterEvent]:
    """The failures of a run's steps, in the order of time."""
    logs = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    return [entry.dagster_event for entry in logs if entry.dagster_event is not None]


def own_cause(error: SerializableErrorInfo) -> SerializableErrorInfo:
    """Our own error among an error and its causes; where none is ours, the first cause."""
    while error.cause and not is_ours(error.cls_name):
        error = error.cause
    return error


def own_words(error: SerializableErrorInfo) -> str:
    """What our own error says, without the name of its class before it."""
    text = error.message.strip()
    return text.split(": ", 1)[-1] if text.startswith("ml_assets.") else text


def name_of(run: dg.DagsterRun) -> str:
    """Return how a message calls a run."""
    trigger = run.tags.get(TRIGGER_TAG, "by hand")
    return f"run {run.run_id[:8]} ({trigger}, {run.status.value.lower()})"


def runs_at_work(instance: dg.DagsterInstance, pipeline: str) -> list[dg.DagsterRun]:
    """Return the runs at work on the pipeline, newest first; none whose process is gone."""
    runs = [record.dagster_run for record in runs_on(instance, pipeline, AT_WORK)]
    return [run for run in runs if _lost_process(instance, run) is None]


def ended_at(record: dg.RunRecord) -> datetime:
    """When a run that is over ended."""
    if record.end_time is None:
        return record.update_timestamp.astimezone(UTC)
    return datetime.fromtimestamp(record.end_time, UTC)


def mark_dead(instance: dg.DagsterInstance, records: Sequence[dg.RunRecord]) -> list[str]:
    """Mark as failed those whose process on this machine is gone, and return their ids.

    Dagster's own launcher for one machine cannot tell: the run would hold its place for ever.
    """
    marked: list[str] = []
    for record in records:
        run = record.dagster_run
        if run.status in AT_WORK and (pid := _lost_process(instance, run)) is not None:
            message = f"Process {pid} is gone; run again to continue where it stopped."
            instance.report_run_failed(run, message)
            marked.append(run.run_id)
    return marked


def _lost_process(instance: dg.DagsterInstance, run: dg.DagsterRun) -> int | None:
    """The process that worked on a run, where it is known to be gone."""
    pid = worker_pid(instance, run)
    if pid is None or (_is_alive(pid) and (PID_TAG in run.tags or _may_be_worker(pid))):
        return None
    return pid


def worker_pid(instance: dg.DagsterInstance, run: dg.DagsterRun) -> int | None:
    """The process that works on a run; None where it is on another machine, or not known yet."""
    if PID_TAG in run.tags:
        return int(run.tags[PID_TAG])
    if not isinstance(instance.run_launcher, dg.DefaultRunLauncher):
        return None
    for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        found = re.fullmatch(r"Started process for run \(pid: (\d+)\)\.", entry.message)
        if found:
            return int(found[1])
    return None


def _is_on(run: dg.DagsterRun, pipeline: str) -> bool:
    if run.tags.get(PIPELINE_TAG) == pipeline:
        return True
    return any(key.path[0] == pipeline for key in run.asset_selection or ())


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _may_be_worker(pid: int) -> bool:
    """Return whether a process may be a run's worker: numbers are given out again.

    After a restart of a container, a server of the UI often has the number of a worker of before.
    No clock is asked, for one that jumps would make a process look younger than its run.
    """
    try:
        return _WORKER in Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:  # no Linux, or it just ended
        asked = ["ps", "-o", "command=", "-p", str(pid)]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, check=False)
    except OSError:
        return True
    return told.returncode != 0 or _WORKER in told.stdout
