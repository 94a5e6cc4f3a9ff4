"""Collects the whole log of one Dagster run, in the order of time.

It has three sources: the run's own events and messages, the output of its steps, and the output of
the training program (each line with its rank). Output has no times of its own: a line gets the time
at which its file last grew, which while it is followed is the moment it was written.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from ml_assets.adapters.execute import progress_line
from ml_assets.errors import UnknownRun, counted
from ml_assets.launch.events import attempt_numbers
from ml_assets.launch.session_name import SESSIONS_TAG
from ml_assets.spec.training_program.pod import REQUEST
from ml_assets.store.objects import LocalObjects

LATEST = "latest"
_ENDED = {
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
}
_SLACK_SECONDS = 2.0
"""A run's times and a file's come from different clocks and buffers."""


@dataclass(frozen=True, order=True)
class Line:
    """One line of a run's log."""

    time: datetime
    order: int
    """Among lines of the same time: as they were read."""
    origin: str = field(compare=False)
    """The step, or the file that it was printed to."""
    text: str = field(compare=False)


def find_run(instance: dg.DagsterInstance, wanted: str) -> dg.DagsterRun:
    """A run by its id, a unique beginning of it, or ``latest``.

    Raises:
        UnknownRun: there is none, or several begin so.
    """
    if wanted == LATEST:
        newest = instance.get_runs(limit=1)
        if not newest:
            raise UnknownRun("There is no run yet. Make one: ml-assets run PIPELINE")
        return newest[0]
    exact = instance.get_run_by_id(wanted)
    if exact is not None:
        return exact
    runs = instance.get_runs()
    found = [run for run in runs if run.run_id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(run.run_id for run in (found or runs)[:5]) or "none"
    what = (
        f"{counted(len(found), 'run', 'begin')} with {wanted!r}"
        if found
        else f"There is no run {wanted!r}"
    )
    raise UnknownRun(f"{what}; {'they are' if found else 'the newest are'}: {shown}")


def run_before(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun | None:
    """The run that was begun before another one; None: it is the first."""
    found = instance.get_runs(cursor=run.run_id, limit=1)
    return found[0] if found else None


class RunLog:
    """The log of one run, read further each time it is asked.

    Args:
        sessions: the folder that the training program's sessions lie in.
    """

    def __init__(self, instance: dg.DagsterInstance, run_id: str, sessions: Path) -> None:
        self._instance = instance
        self._run_id = run_id
        self._sessions = sessions
        self._cursor: str | None = None
        self._captured: dict[str, str | None] = {}
        self._offsets: dict[Path, int] = {}
        self._told: set[str] = set()
        """Lines of ``ml-assets run``, which prints a run's events and is captured as its steps."""
        self._read = 0
        self._newest = datetime.fromtimestamp(0, UTC)

    def new(self) -> list[Line]:
        """Lines that were not given before, in the order of time."""
        return sorted([*self._events(), *self._program(), *self._printed()])

    @property
    def run(self) -> dg.DagsterRun:
        """The run as it stands now."""
        found = self._instance.get_run_by_id(self._run_id)
        assert found is not None
        return found

    @property
    def has_ended(self) -> bool:
        return self.run.status in _ENDED

    @property
    def has_failed(self) -> bool:
        """Return whether it ended in a failure, or was cancelled."""
        return self.run.is_failure_or_canceled

    def _line(self, time: datetime, origin: str, text: str) -> Line:
        self._read += 1
        return Line(time, self._read, origin, text.rstrip())

    def _events(self) -> Iterator[Line]:
        while True:
            connection = self._instance.get_records_for_run(self._run_id, cursor=self._cursor)
            self._cursor = connection.cursor
            for record in connection.records:
                entry = record.event_log_entry
                self._newest = datetime.fromtimestamp(entry.timestamp, UTC)
                self._remember_captured(entry.dagster_event)
                self._told.add((progress_line(entry) or "").strip())
                for text in _said(entry):
                    yield self._line(self._newest, entry.step_key or "run", text)
            if not connection.has_more:
                return

    def _remember_captured(self, event: dg.DagsterEvent | None) -> None:
        if event is not None and event.event_type_value == "LOGS_CAPTURED":
            self._captured.setdefault(event.logs_captured_data.file_key, None)

    def _printed(self) -> Iterator[Line]:
        """What steps printed; what repeats an event, on a console or in a run, is left out."""
        manager = self._instance.compute_log_manager
        for file_key, cursor in list(self._captured.items()):
            data = manager.get_log_data([self._run_id, "compute_logs", file_key], cursor)
            self._captured[file_key] = data.cursor
            for origin, content in (("stdout", data.stdout), ("stderr", data.stderr)):
                for text in (content or b"").decode("utf-8", "replace").splitlines():
                    if text.strip() not in self._told and f" - {self._run_id} - " not in text:
                        yield self._line(self._newest, origin, text)

    def _program(self) -> Iterator[Line]:
        """What the training program printed in the attempts that this run began."""
        for session in self.run.tags.get(SESSIONS_TAG, "").split():
            folder = LocalObjects(self._sessions).path(session)
            for number in attempt_numbers(folder):
                attempt = folder / "attempts" / str(number)
                if self._is_of_this_run(attempt / REQUEST):
                    origin = f"{session.rsplit('-', 1)[0]} attempt {number}"
                    yield from self._grown(attempt / "log.txt", origin)

    def _is_of_this_run(self, request: Path) -> bool:
        """An attempt begun while the run ran; a run that was killed has left others."""
        record = self._instance.get_run_record_by_id(self._run_id)
        if record is None or not request.is_file() or record.start_time is None:
            return False
        began = request.stat().st_mtime
        end = record.end_time if record.end_time is not None else float("inf")
        return record.start_time - _SLACK_SECONDS <= began <= end + _SLACK_SECONDS

    def _grown(self, file: Path, origin: str) -> Iterator[Line]:
        if not file.is_file():
            return
        time = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        with file.open("rb") as handle:
            handle.seek(self._offsets.get(file, 0))
            for line in handle:
                if not line.endswith(b"\n") and not self.has_ended:
                    return  # it is still being written
                self._offsets[file] = self._offsets.get(file, 0) + len(line)
                text = line.decode("utf-8", "replace")
                if text.strip():
                    yield self._line(time, origin, text)


def _said(entry: dg.EventLogEntry) -> Iterator[str]:
    event = entry.dagster_event
    if event is None:
        yield from (f"{_LEVELS.get(int(entry.level), '')}{entry.user_message}").splitlines()
        return
    if event.event_type_value.endswith("_PLANNED"):
        return
    words = (event.message or "").splitlines() or [""]
    yield f"{event.event_type_value}  {words[0]}"
    yield from words[1:]
    if event.is_step_failure:
        error = event.step_failure_data.error
        yield from error.to_string().splitlines() if error else ()


_LEVELS = {30: "warning: ", 40: "error: ", 50: "critical: "}
