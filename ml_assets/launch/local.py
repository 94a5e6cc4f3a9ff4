"""Training sessions as local processes: created, followed, resumed; never two at once."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from ml_assets.errors import TrainingInterrupted
from ml_assets.launch.events import SessionReader, append_warning
from ml_assets.launch.failure import Ending, judge
from ml_assets.launch.folder import SessionFolder
from ml_assets.launch.launcher import OnEvent, SanityJob, ScoreJob, ShouldStop, TrainJob, never
from ml_assets.launch.process import GRACE_SECONDS, ChildProcess
from ml_assets.launch.session import sanity_session, score_session, train_session
from ml_assets.spec.program import (
    Event,
    Output,
    Request,
    SanityOutput,
    SanityRequest,
    SanityResult,
    ScoreOutput,
    ScoreRequest,
    ScoreResult,
    TrainRequest,
    TrainResult,
    World,
    training_world,
)
from ml_assets.storage.objects import LocalObjects

PROGRAM = (sys.executable, "-m", "ml_assets.training")
ERROR_BUDGET = 2
"""Attempts after the first, for an end that running again may mend (a crash, a kill)."""
_POLL_SECONDS = 0.1
ResultT = TypeVar("ResultT", TrainResult, ScoreResult, SanityResult)


@dataclass(frozen=True)
class _Work(Generic[ResultT]):
    """What a session is asked to do, whichever verb it is."""

    pipeline: str
    verb: str
    folder: SessionFolder
    world: World
    request: Callable[[int], Request]
    """The request of an attempt, from its number."""
    finished: Callable[[], ResultT | None]


@dataclass
class _Follower:
    """Passes a session's events on, each once, and remembers those of the last attempt."""

    reader: SessionReader
    on_event: OnEvent
    should_stop: ShouldStop
    _told: bool = False
    _last: list[Event] = field(default_factory=list)

    def pass_on(self) -> None:
        for event in self.reader.new():
            if self._last and self._last[-1].attempt != event.attempt:
                self._last.clear()
            self._last.append(event)
            self.on_event(event)

    def wait(self) -> None:
        """Another process has the session: pass on what its attempts tell.

        Raises:
            TrainingInterrupted: this follower was told to stop; the other process goes on.
        """
        self.pass_on()
        if self.told_to_stop():
            raise TrainingInterrupted("Stopped following; the session goes on in its own process.")
        time.sleep(_POLL_SECONDS)

    def told_to_stop(self) -> bool:
        self._told = self._told or self.should_stop()
        return self._told

    def of_attempt(self, number: int) -> list[Event]:
        return [event for event in self._last if event.attempt == number]


class LocalLauncher:
    """The launcher of a laptop: plain Python for one process, torchrun for more.

    Args:
        objects: root of the object store; sessions lie in its ``sessions/``.
        program: how the training program is started, the interpreter first.
        grace: seconds from the notice to stop to the end of a program that does not.
    """

    def __init__(
        self, objects: Path, program: Sequence[str] = PROGRAM, grace: float = GRACE_SECONDS
    ) -> None:
        self._objects = LocalObjects(objects)
        self._program = tuple(program)
        self._grace = grace

    def train(
        self, job: TrainJob, on_event: OnEvent, should_stop: ShouldStop = never
    ) -> TrainResult:
        """See ``Launcher.train``."""
        folder = SessionFolder(self._objects.path("sessions", train_session(job)))
        world = training_world(job.model, job.training)

        def request(number: int) -> TrainRequest:
            return _train_request(job, folder, number, world)

        work = _Work(job.pipeline, "train", folder, world, request, folder.finished_training)
        return self._run(work, on_event, should_stop)

    def score(
        self, job: ScoreJob, on_event: OnEvent, should_stop: ShouldStop = never
    ) -> ScoreResult:
        """See ``Launcher.score``."""
        folder = SessionFolder(self._objects.path("sessions", score_session(job)))
        world = World(threads=job.threads)

        def request(number: int) -> ScoreRequest:
            return _score_request(job, folder, number, world)

        work = _Work(job.pipeline, "score", folder, world, request, folder.finished_scoring)
        return self._run(work, on_event, should_stop)

    def sanity(
        self, job: SanityJob, on_event: OnEvent, should_stop: ShouldStop = never
    ) -> SanityResult:
        """See ``Launcher.sanity``."""
        folder = self._sanity_folder(job)
        world = World(threads=job.training.threads)

        def request(number: int) -> SanityRequest:
            return _sanity_request(job, folder, number, world)

        work = _Work(job.pipeline, "sanity", folder, world, request, folder.finished_sanity)
        return self._run(work, on_event, should_stop)

    def known_sanity(self, job: SanityJob) -> SanityResult | None:
        """See ``Launcher.known_sanity``."""
        return self._sanity_folder(job).finished_sanity()

    def _sanity_folder(self, job: SanityJob) -> SessionFolder:
        return SessionFolder(self._objects.path("sessions", sanity_session(job)))

    def _run(self, work: _Work[ResultT], on_event: OnEvent, should_stop: ShouldStop) -> ResultT:
        """Create or adopt. Whoever comes gets every event of the session, and its one result."""
        follower = _Follower(SessionReader(work.folder.root), on_event, should_stop)
        with work.folder.held(follower.wait):
            follower.pass_on()
            done = work.finished()
            if done is not None:
                return done
            work.folder.state(work.pipeline, work.verb)
            return self._attempts(work, follower)

    def _attempts(self, work: _Work[ResultT], follower: _Follower) -> ResultT:
        """Attempts until one has a whole result, or ends for good, or the budget is spent."""
        tries = 0
        while True:
            request = work.request(work.folder.next_attempt())
            ending = self._attempt(work, request, follower)
            done = work.finished()  # whole whatever ended it: a crash after the result is no loss
            if done is not None:
                return done
            if follower.told_to_stop():
                raise TrainingInterrupted(str(ending.error))
            if ending.then != "again" or tries == ERROR_BUDGET:
                raise ending.error
            tries += 1
            append_warning(
                work.folder.attempt(request.attempt),
                work.folder.session,
                request.attempt,
                f"{ending.error}\n  Attempt {request.attempt + 1} goes on from the last whole"
                f" checkpoint (retry {tries} of {ERROR_BUDGET}).",
            )
            follower.pass_on()

    def _attempt(self, work: _Work[ResultT], request: Request, follower: _Follower) -> Ending:
        """Run one attempt to its end; whoever stops following ends it."""
        command = self._command(request, work.folder.begin(request))
        log = work.folder.log(request.attempt)
        with ChildProcess.running(command, work.world.threads, log, self._grace) as child:
            while (code := child.exit_code()) is None:
                follower.pass_on()
                if follower.told_to_stop():
                    child.end()
                else:
                    time.sleep(_POLL_SECONDS)
        follower.pass_on()
        name = f"{work.pipeline}: attempt {request.attempt} of session {work.folder.session}"
        events = follower.of_attempt(request.attempt)
        return judge(name, code, events, log, workers=work.world.procs > 1)

    def _command(self, request: Request, path: Path) -> list[str]:
        arguments = [request.verb, "--request", str(path)]
        if request.world.procs == 1:
            return [*self._program, *arguments]
        python, *program = self._program
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--max-restarts=0"]
        procs = f"--nproc-per-node={request.world.procs}"
        # every line that a rank prints says which one did: [rank0]: ...
        named = ["--role=rank", "--tee=3", f"--log-dir={path.parent / 'ranks'}"]
        return [python, *torchrun, procs, *named, *program, *arguments]


def _train_request(job: TrainJob, folder: SessionFolder, number: int, world: World) -> TrainRequest:
    return TrainRequest(
        session=folder.session,
        attempt=number,
        model=job.model,
        training=job.training,
        data=job.data,
        init=job.init,
        resume=folder.newest_checkpoint(),
        output=Output(
            checkpoints=str(folder.checkpoints),
            model=str(folder.model),
            events=str(folder.events(number)),
            result=str(folder.result(number)),
        ),
        world=world,
    )


def _score_request(job: ScoreJob, folder: SessionFolder, number: int, world: World) -> ScoreRequest:
    return ScoreRequest(
        session=folder.session,
        attempt=number,
        model=job.model,
        data=job.data,
        split=job.split,
        output=ScoreOutput(
            predictions=str(folder.predictions),
            events=str(folder.events(number)),
            result=str(folder.result(number)),
        ),
        world=world,
    )


def _sanity_request(
    job: SanityJob, folder: SessionFolder, number: int, world: World
) -> SanityRequest:
    return SanityRequest(
        session=folder.session,
        attempt=number,
        model=job.model,
        training=job.training,
        data=job.data,
        output=SanityOutput(events=str(folder.events(number)), result=str(folder.result(number))),
        world=world,
    )
