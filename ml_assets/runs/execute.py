"""Running part of the graph in this process, with its progress told while it happens."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from ml_assets.errors import MlAssetsError, RefusedByGate, RunFailed

PID_TAG = "ml_assets/pid"
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Selection:
    """What one run makes."""

    assets: tuple[dg.AssetKey, ...] = ()
    checks: tuple[dg.AssetCheckKey, ...] | None = None
    """None: every check of the assets."""
    partitions: tuple[str, str] | None = None
    """First and last partition key of a range."""


def execute(
    defs: dg.Definitions,
    instance: dg.DagsterInstance,
    selection: Selection,
    tell: Tell,
    config: dict[str, Any] | None = None,
) -> str:
    """Run the selection and return the run's id.

    Raises:
        RefusedByGate: the run stopped at a gate that did not pass.
        RunFailed: a step failed otherwise.
    """
    job = defs.resolve_implicit_global_asset_job_def()
    subset = job.get_subset(
        asset_selection=set(selection.assets),
        asset_check_selection=None if selection.checks is None else set(selection.checks),
    )
    tags = {PID_TAG: str(os.getpid()), **_range_tags(selection.partitions)}
    with _Progress(instance, tags[PID_TAG], tell) as progress:
        result = subset.execute_in_process(
            instance=instance,
            tags=tags,
            run_config={"loggers": _QUIET, **(config or {})},
            raise_on_error=False,
        )
        progress.follow_to_the_end(result.run_id)
    if not result.success:
        raise _failure(result)
    return result.run_id


def mark_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark as failed the runs of command lines that are gone; call it while holding the lock."""
    marked: list[str] = []
    for run in instance.get_runs(filters=dg.RunsFilter(statuses=_IN_PROGRESS)):
        if PID_TAG in run.tags and run.tags[PID_TAG] != str(os.getpid()):
            message = f"Process {run.tags[PID_TAG]} is gone; run again to go on where it stopped."
            instance.report_run_failed(run, message)
            marked.append(run.run_id)
    return marked


_IN_PROGRESS = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_QUIET = {"console": {"config": {"log_level": "CRITICAL"}}}


def _range_tags(partitions: tuple[str, str] | None) -> dict[str, str]:
    if partitions is None:
        return {}
    first, last = partitions
    return {
        "dagster/asset_partition_range_start": first,
        "dagster/asset_partition_range_end": last,
    }


def _failure(result: dg.ExecuteInProcessResult) -> MlAssetsError:
    failures = [event for event in result.all_events if event.is_step_failure]
    refused = [
        event.asset_check_evaluation_data
        for event in result.all_events
        if event.event_type_value == "ASSET_CHECK_EVALUATION"
    ]
    blocked = [c for c in refused if c.blocking and not c.passed]
    if blocked and any((event.step_key or "").endswith("__gates") for event in failures):
        lines = "\n".join(f"  {c.check_name}: {c.description}" for c in blocked)
        return RefusedByGate(f"The model was refused by {len(blocked)} gates:\n{lines}")
    reasons = "\n".join(f"{event.step_key}: {_reason(event)}" for event in failures)
    if any("EvidenceError" in str(event.step_failure_data.error) for event in failures):
        return RefusedByGate(reasons)
    return RunFailed(f"Run {result.run_id} failed.\n{reasons}")


def _reason(event: dg.DagsterEvent) -> str:
    error = event.step_failure_data.error
    while error and error.cause and not _is_ours(error.cls_name):
        error = error.cause
    if error is None:
        return "no reason was given"
    text = error.message.strip()
    if _is_ours(error.cls_name):
        return text.split(": ", 1)[-1] if text.startswith("ml_assets.") else text
    return f"{text}\n{''.join(error.stack[-3:])}"


def _is_ours(class_name: str | None) -> bool:
    def names(cls: type) -> set[str]:
        return {cls.__name__}.union(*(names(sub) for sub in cls.__subclasses__()))

    return class_name in names(MlAssetsError)


class _Progress:
    """Tells the log of a run while it runs: the event log is polled from a thread."""

    def __init__(self, instance: dg.DagsterInstance, pid: str, tell: Tell) -> None:
        self._instance = instance
        self._pid = pid
        self._tell = tell
        self._stop = threading.Event()
        self._cursor: str | None = None
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> "_Progress":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def follow_to_the_end(self, run_id: str) -> None:
        """Stop the thread and tell what it has not told yet."""
        self._stop.set()
        self._thread.join(timeout=5)
        self._tell_new(run_id)

    def _poll(self) -> None:
        run_id: str | None = None
        while not self._stop.wait(0.3):
            run_id = run_id or self._find_run()
            if run_id:
                self._tell_new(run_id)

    def _find_run(self) -> str | None:
        filters = dg.RunsFilter(tags={PID_TAG: self._pid}, statuses=_IN_PROGRESS)
        runs: Sequence[dg.DagsterRun] = self._instance.get_runs(filters=filters, limit=1)
        return runs[0].run_id if runs else None

    def _tell_new(self, run_id: str) -> None:
        connection = self._instance.get_records_for_run(run_id, cursor=self._cursor)
        self._cursor = connection.cursor
        for record in connection.records:
            line = progress_line(record.event_log_entry)
            if line:
                self._tell(line)


def progress_line(entry: dg.EventLogEntry) -> str | None:
    """An event as the command line tells it; None for one that it does not tell."""
    event = entry.dagster_event
    if event is None:
        return f"  {entry.user_message}" if int(entry.level) >= logging.INFO else None
    if event.event_type_value == "STEP_START":
        return f"> {event.step_key}"
    if event.event_type_value == "ASSET_CHECK_EVALUATION":
        check = event.asset_check_evaluation_data
        if check.partition is not None:
            return None
        mark = "pass" if check.passed else check.severity.value
        return f"  [{mark}] {check.check_name}: {check.description or ''}"
    return None
