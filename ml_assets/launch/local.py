"""Training sessions as local processes: created, followed, resumed; never two at once."""

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from ml_assets.errors import TrainingFailed
from ml_assets.launch.events import EventReader, session_events
from ml_assets.launch.failure import FINAL, failure, true_code
from ml_assets.launch.launcher import OnEvent, ScoreJob, TrainJob
from ml_assets.launch.process import ChildProcess
from ml_assets.launch.session import score_session, train_session
from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.program import (
    EXIT_SAVED_AFTER_NOTICE,
    Event,
    File,
    Output,
    Ref,
    Request,
    ScoreOutput,
    ScoreRequest,
    ScoreResult,
    TrainRequest,
    TrainResult,
    Warning,
    World,
)
from ml_assets.storage.objects import LocalObjects, file_digest

PROGRAM = (sys.executable, "-m", "ml_assets.training")
ERROR_BUDGET = 2
"""Attempts after the first, for an end that running again may mend (a crash, a kill)."""
_POLL_SECONDS = 0.1
ResultT = TypeVar("ResultT", bound=BaseModel)
RequestOfAttempt = Callable[[int], Request]


@dataclass(frozen=True)
class SessionFolder:
    """Where one session lives in the object store."""

    root: Path

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def attempt(self, number: int) -> Path:
        return self.root / "attempts" / str(number)

    def last_attempt(self) -> int:
        """The newest attempt's number; 0 before the first."""
        names = [p.name for p in (self.root / "attempts").glob("*") if p.name.isdigit()]
        return max(map(int, names), default=0)

    def results(self) -> Iterator[Path]:
        for number in range(self.last_attempt(), 0, -1):
            if (self.attempt(number) / "result.json").is_file():
                yield self.attempt(number) / "result.json"


class LocalLauncher:
    """The launcher of a laptop: plain Python for one process, torchrun for more."""

    def __init__(self, objects: Path, program: Sequence[str] = PROGRAM) -> None:
        self._objects = LocalObjects(objects)
        self._program = tuple(program)

    def train(self, job: TrainJob, on_event: OnEvent) -> TrainResult:
        session = train_session(job)
        folder = SessionFolder(self._objects.folder("sessions", session))
        with _held(folder.root, on_event):
            done = _finished_training(folder)
            if done is not None:
                _replay(folder, on_event)
                return done

            def request(number: int) -> TrainRequest:
                return _train_request(job, session, folder, number)

            procs = job.training.processes
            self._attempts(folder, request, procs, job.training.threads, on_event)
            done = _finished_training(folder)
            if done is None:
                raise TrainingFailed(f"Session {session} ended, but its model is not whole.")
            return done

    def score(self, job: ScoreJob, on_event: OnEvent) -> ScoreResult:
        session = score_session(job)
        folder = SessionFolder(self._objects.folder("sessions", session))
        with _held(folder.root, on_event):
            done = _finished_scoring(folder)
            if done is not None:
                return done
            self._attempts(
                folder,
                lambda number: _score_request(job, session, folder, number),
                1,
                job.threads,
                on_event,
            )
            done = _finished_scoring(folder)
            if done is None:
                raise TrainingFailed(f"Session {session} ended, but its predictions are not whole.")
            return done

    def _attempts(
        self,
        folder: SessionFolder,
        request: RequestOfAttempt,
        procs: int,
        threads: int,
        on_event: OnEvent,
    ) -> None:
        """Attempts until one ends well, or with an error that is final, or the budget is spent."""
        for again in range(ERROR_BUDGET + 1):
            number = folder.last_attempt() + 1
            asked = request(number)
            path = folder.attempt(number) / "request.json"
            path.parent.mkdir(parents=True)
            self._objects.write_bytes(
                canonical_json(asked), *path.relative_to(self._objects.root).parts
            )
            code, events = self._follow(folder.attempt(number), asked, procs, threads, on_event)
            if code == 0:
                return
            cause = true_code(code, events)
            error = failure(code, events, folder.attempt(number) / "log.txt")
            if cause in FINAL or cause == EXIT_SAVED_AFTER_NOTICE or again == ERROR_BUDGET:
                raise error
            on_event(_warning(asked, f"{error}\n  Attempt {number + 1} goes on from there."))

    def _follow(
        self, folder: Path, request: Request, procs: int, threads: int, on_event: OnEvent
    ) -> tuple[int, list[Event]]:
        """Run one attempt to its end; whoever stops following ends it."""
        command = self._command(request, folder / "request.json", procs)
        child = ChildProcess(command, threads, folder / "log.txt")
        reader = EventReader(folder)
        events: list[Event] = []
        try:
            while (code := child.exit_code()) is None:
                _pass_on(reader, events, on_event)
                time.sleep(_POLL_SECONDS)
            _pass_on(reader, events, on_event)
        except BaseException:
            child.end()
            raise
        child.sweep()
        return code, events

    def _command(self, request: Request, path: Path, procs: int) -> list[str]:
        arguments = [request.verb, "--request", str(path)]
        if procs == 1:
            return [*self._program, *arguments]
        python, *program = self._program
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--max-restarts=0"]
        return [python, *torchrun, f"--nproc-per-node={procs}", *program, *arguments]


@contextmanager
def _held(folder: Path, on_event: OnEvent) -> Iterator[None]:
    """One process works on a session; others follow its events until it ends, or take over.

    An OS lock, not inherited by the program: the death of the holder frees it.
    """
    with (folder / "lock").open("a+") as handle:
        while not _locked(handle.fileno()):
            _follow_other(folder, handle.fileno(), on_event)
        handle.seek(0)
        handle.truncate()
        since = datetime.now(UTC).isoformat(timespec="seconds")
        handle.write(json.dumps({"pid": os.getpid(), "since": since}))
        handle.flush()
        yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _follow_other(folder: Path, descriptor: int, on_event: OnEvent) -> None:
    """Pass on what another process's attempts tell, until its lock is free."""
    session = SessionFolder(folder)
    readers: dict[int, EventReader] = {}
    while True:
        number = session.last_attempt()
        reader = readers.setdefault(number, EventReader(session.attempt(number)))
        _pass_on(reader, [], on_event)
        if _locked(descriptor):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            return
        time.sleep(_POLL_SECONDS)


def _pass_on(reader: EventReader, events: list[Event], on_event: OnEvent) -> None:
    for event in reader.new():
        events.append(event)
        on_event(event)


def _replay(folder: SessionFolder, on_event: OnEvent) -> None:
    for event in session_events(folder.root):
        on_event(event)


def _train_request(job: TrainJob, session: str, folder: SessionFolder, number: int) -> TrainRequest:
    attempt = folder.attempt(number)
    return TrainRequest(
        session=session,
        attempt=number,
        model=job.model,
        training=job.training,
        data=job.data,
        resume=newest_checkpoint(folder.checkpoints),
        output=Output(
            checkpoints=str(folder.checkpoints),
            model=str(folder.root / "model"),
            events=str(attempt / "events.jsonl"),
            result=str(attempt / "result.json"),
        ),
        world=World(procs=job.training.processes, threads=job.training.threads),
    )


def _score_request(job: ScoreJob, session: str, folder: SessionFolder, number: int) -> ScoreRequest:
    attempt = folder.attempt(number)
    return ScoreRequest(
        session=session,
        attempt=number,
        model=job.model,
        data=job.data,
        split=job.split,
        output=ScoreOutput(
            predictions=str(folder.root / "predictions.npy"),
            events=str(attempt / "events.jsonl"),
            result=str(attempt / "result.json"),
        ),
        world=World(threads=job.threads),
    )


def newest_checkpoint(folder: Path) -> Ref | None:
    """The newest checkpoint with a manifest; the program verifies it before it is used."""
    manifests = sorted(folder.glob("*/manifest.json"))
    if not manifests:
        return None
    return Ref(uri=str(manifests[-1].parent), digest=file_digest(manifests[-1]))


def _finished_training(folder: SessionFolder) -> TrainResult | None:
    """The result of a session whose model is still what it says."""
    for path in folder.results():
        result = _parsed(TrainResult, path)
        if result is None:
            continue
        manifest = Path(result.model.uri) / "model.json"
        if manifest.is_file() and file_digest(manifest) == result.model.digest:
            return result
    return None


def _finished_scoring(folder: SessionFolder) -> ScoreResult | None:
    for path in folder.results():
        result = _parsed(ScoreResult, path)
        if result is not None and _is_whole(result.predictions):
            return result
    return None


def _is_whole(file: File) -> bool:
    path = Path(file.path)
    return path.is_file() and file_digest(path) == file.sha256


def _parsed(kind: type[ResultT], path: Path) -> ResultT | None:
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _warning(request: Request, message: str) -> Warning:
    return Warning(
        session=request.session,
        attempt=request.attempt,
        seq=0,
        time=datetime.now(UTC),
        message=message,
    )
