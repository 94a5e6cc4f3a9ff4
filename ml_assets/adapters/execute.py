"""Runs part of the graph in this process and reports its progress."""

import logging
import os
import signal
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg

from ml_assets.adapters.check_outcome import not_asked
from ml_assets.adapters.runs import (
    AT_WORK,
    PID_TAG,
    PIPELINE_TAG,
    TRIGGER_TAG,
    Selection,
    living_runs,
    name_of,
    own_cause,
    own_words,
)
from ml_assets.errors import (
    Interrupted,
    MlAssetsError,
    NotSane,
    RefusedByGate,
    RunFailed,
    counted,
    is_ours,
)
from ml_assets.store.disk import refusal

Tell = Callable[[str], None]


_NUMBERS = {signal.SIGINT, signal.SIGTERM}


class Arrived:
    """Says whether SIGINT or SIGTERM has arrived since the block began."""

    def __init__(self, pipe: int | None) -> None:
        self._pipe = pipe
        self._seen = False

    def __bool__(self) -> bool:
        while self._pipe is not None and not self._seen:
            try:
                read = os.read(self._pipe, 64)
            except BlockingIOError:
                break
            self._seen = any(number in _NUMBERS for number in read)
        return self._seen


@contextmanager
def interrupts_noted() -> Iterator[Arrived]:
    """Note the signals of the block; in another thread than the main one there are none.

    Dagster raises from its signal handler. Where that is below a Polars call which calls back into
    Python (to make a data type, to run a function of a team), Polars panics or blames the
    function: neither says that somebody pressed Ctrl-C. Python notes each signal in a pipe.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Arrived(None)
        return
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield Arrived(reading)
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)
        os.close(reading)


def execute(
    defs: dg.Definitions,
    instance: dg.DagsterInstance,
    pipeline: str,
    selection: Selection,
    tell: Tell,
    config: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Run the selection and return the run's id.

    Args:
        tags: more of the run's, such as the words that it came with.

    Raises:
        RefusedByGate: the run stopped at a gate that did not pass.
        NotSane: training did not begin, for a sanity check failed.
        Interrupted: somebody stopped it.
        RunFailed: a step failed otherwise.
    """
    job = defs.resolve_implicit_global_asset_job_def()
    subset = job.get_subset(
        asset_selection=set(selection.assets),
        asset_check_selection=None if selection.checks is None else set(selection.checks),
    )
    own = {
        PID_TAG: str(os.getpid()),
        PIPELINE_TAG: pipeline,
        TRIGGER_TAG: "command line",
        **selection.tags,
    }
    with (
        interrupts_noted() as interrupted,
        _Progress(instance, own[PID_TAG], tell, interrupted) as progress,
    ):
        try:
            result = subset.execute_in_process(
                instance=instance,
                tags={**tags, **own},
                run_config={"loggers": _QUIET, **(config or {})},
                raise_on_error=False,
            )
        except dg.DagsterExecutionInterruptedError as error:
            raise Interrupted(_INTERRUPTED) from error
        except Exception as error:
            told = refusal(error)
            if told is None:
                raise
            raise told from error
        progress.follow_to_the_end(result.run_id)
        if not result.success:
            _say_not_asked(defs, instance, result)
        if interrupted:  # also where all was made: a library may have swallowed what was raised
            raise Interrupted(_INTERRUPTED)
        if not result.success:
            raise _failure(result, pipeline)
    return result.run_id


def mark_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark as failed the runs of command lines that are gone; call it while holding the lock."""
    marked: list[str] = []
    for run in instance.get_runs(filters=dg.RunsFilter(statuses=_IN_PROGRESS)):
        if PID_TAG in run.tags:  # whoever holds the lock has no run yet; numbers come again
            message = (
                f"Process {run.tags[PID_TAG]} is gone; run again to continue where it stopped."
            )
            instance.report_run_failed(run, message)
            marked.append(run.run_id)
    return marked


def wait_for_others(instance: dg.DagsterInstance, pipeline: str, tell: Tell) -> None:
    """Return when no run of the UI or its daemon is at work on the pipeline.

    The lock keeps command lines apart, the pool of the pipeline the runs of the daemon; this
    keeps the command line from working beside them. Should both begin in the same second, nothing
    is lost: publishing is atomic, and refused where another run was first.
    """
    told: set[str] = set()
    while True:
        working = [record.dagster_run for record in living_runs(instance, pipeline, AT_WORK)]
        if not working:
            return
        for run in working:
            if run.run_id not in told:
                tell(f"waiting for {name_of(run)}, which is at work on {pipeline}")
                told.add(run.run_id)
        time.sleep(1)


_IN_PROGRESS = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_INTERRUPTED = "the run was interrupted"
_STOPPING = (
    "stopping: what was made is kept, and a training saves its state first. Ctrl-C again does not"
    " wait for that"
)
_CHECK_PLANNED = dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED
_QUIET = {"console": {"config": {"log_level": "CRITICAL"}}}


def _say_not_asked(
    defs: dg.Definitions, instance: dg.DagsterInstance, result: dg.ExecuteInProcessResult
) -> None:
    """Answer the checks that the run did not come to: Dagster would show each as failed.

    A check that the failed step itself would have answered is left: it did fail with its step.
    """
    planned = instance.all_logs(result.run_id, of_type=_CHECK_PLANNED)
    asked = {
        event.asset_check_evaluation_data.asset_check_key
        for event in result.all_events
        if event.event_type_value == "ASSET_CHECK_EVALUATION"
    }
    steps = [event.step_key for event in result.all_events if event.is_step_failure]
    for entry in planned:
        event = entry.dagster_event
        key = event.asset_check_planned_data.asset_check_key if event else None
        if key is None or key in asked:
            continue
        own = key in defs.resolve_assets_def(key.asset_key).check_keys
        if not own or "__".join(key.asset_key.path) not in steps:
            instance.report_runless_asset_event(not_asked(key, steps))


def _failure(result: dg.ExecuteInProcessResult, pipeline: str) -> MlAssetsError:
    failures = [event for event in result.all_events if event.is_step_failure]
    blocked = _blocked(result, failures, f"{pipeline}__canary")
    if blocked:
        return RefusedByGate("The model stays in canary:\n" + "\n".join(blocked))
    blocked = _blocked(result, failures, f"{pipeline}__gates")
    if blocked:
        said = f"The model was refused by {counted(len(blocked), 'gate')}:"
        look = f"the evidence: ml-assets models report {pipeline} --open"
        return RefusedByGate("\n".join([said, *blocked, look]))
    blocked = _blocked(result, failures, f"{pipeline}__sanity")
    if blocked:
        number = counted(len(blocked), "sanity check")
        said = f"Training did not begin: {number} of the network on its training set failed:\n"
        return NotSane(said + "\n".join(blocked))
    reasons = "\n".join(f"{event.step_key}: {_reason(event)}" for event in failures)
    reasons += f"\nthe whole log: ml-assets ops logs {result.run_id[:8]}"
    if any("EvidenceError" in str(event.step_failure_data.error) for event in failures):
        return RefusedByGate(reasons)
    steps = [event.step_key for event in failures if event.step_key]
    return RunFailed(f"Run {result.run_id} failed.\n{reasons}", steps)


def _blocked(
    result: dg.ExecuteInProcessResult, failures: Sequence[dg.DagsterEvent], step: str
) -> list[str]:
    """What the failing checks of a step said, where they are why it failed."""
    if all(event.step_key != step for event in failures):
        return []
    evaluations = [
        event.asset_check_evaluation_data
        for event in result.all_events
        if event.event_type_value == "ASSET_CHECK_EVALUATION" and event.step_key == step
    ]
    return [
        f"  {c.check_name}: {c.description}"
        for c in evaluations
        if c.blocking and not c.passed and c.severity is dg.AssetCheckSeverity.ERROR
    ]


def _reason(event: dg.DagsterEvent) -> str:
    error = event.step_failure_data.error
    if error is None:
        return "no reason was given"
    cause = own_cause(error)
    if is_ours(cause.cls_name):
        return own_words(cause)
    return f"{cause.message.strip()}\n{''.join(_telling(cause.stack))}"


def _telling(stack: Sequence[str]) -> Sequence[str]:
    """The end of a stack; where it went through a team's code, that alone, and not a library's."""
    own = [frame for frame in stack if not any(place in frame for place in _NOT_OF_A_TEAM)]
    return (own or stack)[-3:]


_NOT_OF_A_TEAM = (
    f'"{Path(__file__).parents[1]}{os.sep}',
    f'"{sysconfig.get_path("stdlib")}{os.sep}',
    f"{os.sep}site-packages{os.sep}",
    'File "<',
)
"""What the place of a frame has in it, in a stack as Dagster writes it."""


_NOT_RUN = "Dependencies for step "
"""Begins what Dagster says of a step that did not run because one before it failed."""


class _Progress:
    """Tells the log of a run while it runs: the event log is polled from a thread.

    It tells of a signal, too, at once: the run may take seconds to end.
    """

    def __init__(
        self, instance: dg.DagsterInstance, pid: str, tell: Tell, interrupted: Arrived
    ) -> None:
        self._interrupted = interrupted
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
        self._thread.join()  # it may be telling what it has read: none of that is told twice
        self._tell_new(run_id)

    def _poll(self) -> None:
        run_id: str | None = None
        stopping = False
        while not self._stop.wait(0.5):
            if self._interrupted and not stopping:
                stopping = True
                self._tell(_STOPPING)
            try:
                run_id = run_id or self._find_run()
                if run_id:
                    self._tell_new(run_id)
            except Exception as error:
                if refusal(error) is None:
                    raise
                return  # the run meets the same disk, and says so

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
        if int(entry.level) < logging.INFO:
            return None
        if entry.user_message.startswith(_NOT_RUN):  # the error at the end says why
            return None
        wrong = int(entry.level) >= logging.WARNING
        return f"  {'warning: ' if wrong else ''}{entry.user_message}"
    if event.event_type_value == "STEP_START":
        return f"> {event.step_key}"
    if event.event_type_value == "ASSET_CHECK_EVALUATION":
        check = event.asset_check_evaluation_data
        if check.partition is not None:
            return None
        failed = "fail" if check.severity is dg.AssetCheckSeverity.ERROR else "warn"
        mark = "pass" if check.passed else failed
        return f"  [{mark}] {check.check_name}: {check.description or ''}"
    return None
