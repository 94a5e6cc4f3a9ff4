"""Training sessions as local processes: created, followed, resumed; never two at once."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from ml_assets.errors import TrainingInterrupted
from ml_assets.launch.countersign import countersign
from ml_assets.launch.events import SessionReader, append_warning
from ml_assets.launch.failure import Ending, judge, stood_still
from ml_assets.launch.folder import SessionFolder
from ml_assets.launch.launcher import (
    MeasureJob,
    OnEvent,
    SanityJob,
    ScoreJob,
    ShouldStop,
    TrainJob,
    never,
)
from ml_assets.launch.process import GRACE_SECONDS, ChildProcess
from ml_assets.launch.recovery import (
    ERROR_BUDGET,
    Ended,
    next_attempt,
    spread_over,
)
from ml_assets.launch.session import (
    measure_session,
    sanity_session,
    score_session,
    train_session,
)
from ml_assets.launch.standstill import Standstill
from ml_assets.spec.events import Event
from ml_assets.spec.program import (
    MeasureOutput,
    MeasureRequest,
    MeasureResult,
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
from ml_assets.spec.torchrun import RESTARTS, Start
from ml_assets.storage.objects import LocalObjects
from ml_assets.storage.s3 import S3_SCHEME
from ml_assets.storage.signing import Keys
from ml_assets.storage.trust import keys_of

PROGRAM = (sys.executable, "-m", "ml_assets.training")
_POLL_SECONDS = 0.1
ResultT = TypeVar("ResultT", TrainResult, ScoreResult, MeasureResult, SanityResult)


@dataclass(frozen=True)
class _Work(Generic[ResultT]):
    """What a session is asked to do, whichever verb it is."""

    pipeline: str
    verb: str
    folder: SessionFolder
    world: World
    request: Callable[[int, World], Request]
    """The request of an attempt, from its number and its processes."""
    finished: Callable[[], ResultT | None]
    keys: Keys | None = None
    """Countersign the result with; None: it needs no signature."""


@dataclass
class _Follower:
    """Passes a session's events on, each once, and remembers those of the last attempt."""

    reader: SessionReader
    on_event: OnEvent
    should_stop: ShouldStop
    passed_on: int = 0
    _told: bool = False
    _last: list[Event] = field(default_factory=list)

    def pass_on(self) -> None:
        for event in self.reader.new():
            if self._last and self._last[-1].attempt != event.attempt:
                self._last.clear()
            self._last.append(event)
            self.passed_on += 1
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
        retries: attempts after the first, where running again may mend it.
        checkpoints: a folder or ``s3://bucket/prefix`` for all sessions; None: each beside its own.
        restarts: how often torchrun starts the processes of one attempt again.
        keys: what a score or an examination counts by; None: a key beside the objects.
    """

    def __init__(
        self,
        objects: Path,
        program: Sequence[str] = PROGRAM,
        grace: float = GRACE_SECONDS,
        retries: int = ERROR_BUDGET,
        checkpoints: str | None = None,
        restarts: int = RESTARTS,
        keys: Callable[[], Keys] | None = None,
    ) -> None:
        self._objects = LocalObjects(objects)
        self._program = tuple(program)
        self._grace = grace
        self._retries = retries
        self._checkpoints = checkpoints
        self._restarts = restarts
        self._keys = keys or partial(keys_of, objects)

    def train(
        self, job: TrainJob, on_event: OnEvent, should_stop: ShouldStop = never
    ) -> TrainResult:
        """See ``Launcher.train``."""
        folder = SessionFolder(
            self._objects.path("sessions", train_session(job)), self._checkpoints
        )
        world = training_world(job.model, job.training)

        def request(number: int, world: World) -> TrainRequest:
            return _train_request(job, folder, number, world)

        work = _Work(job.pipeline, "train", folder, world, request, folder.finished_training)
        return self._run(work, on_event, should_stop)

    def score(
        self, job: ScoreJob, on_event: OnEvent, should_stop: ShouldStop = never
    ) -> ScoreResult:
        """See ``Launcher.score``."""
        folder = SessionFolder(self._objects.path("sessions", score_session(job)))
        world = World(threads=job.threads)

        def request(number: int, world: World) -> ScoreRequest:
            return _score_request(job, folder, number, world)

        keys = self._keys()
        finished = partial(folder.finished_scoring, keys)
        work = _Work(job.pipeline, "score", folder, world, request, finished, keys)
        return self._run(work, on_event, should_stop)

    def measure(self, job: MeasureJob) -> MeasureResult:
        """Take a few steps of a training and say how fast they were; errors are those of train."""
        folder = SessionFolder(self._objects.path("sessions", measure_session(job)))
        world = training_world(job.model, job.training)

        def request(number: int, world: World) -> MeasureRequest:
            return _measure_request(job, folder, number, world)

        work = _Work(job.pipeline, "measure", folder, world, request, folder.finished_measuring)
        return self._run(work, lambda _: None, never)

    def sanity(
        self, job: SanityJob, on_event: OnEvent, should_stop: ShouldStop = never
    ) -> SanityResult:
        """See ``Launcher.sanity``."""
        folder = self._sanity_folder(job)
        world = World(threads=job.training.threads)

        def request(number: int, world: World) -> SanityRequest:
            return _sanity_request(job, folder, number, world)

        keys = self._keys()
        finished = partial(folder.finished_sanity, keys)
        work = _Work(job.pipeline, "sanity", folder, world, request, finished, keys)
        return self._run(work, on_event, should_stop)

    def known_sanity(self, job: SanityJob) -> SanityResult | None:
        """See ``Launcher.known_sanity``."""
        return self._sanity_folder(job).finished_sanity(self._keys())

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
        world, ended = work.world, list[Ended]()
        while True:
            request = work.request(work.folder.next_attempt(), world)
            ending = self._attempt(work, request, follower)
            if work.keys is not None:
                countersign(work.folder.result(request.attempt), work.keys)
            done = work.finished()  # whole whatever ended it: a crash after the result is no loss
            if done is not None:
                return done
            if follower.told_to_stop():
                raise TrainingInterrupted(str(ending.error))
            ended.append(Ended(world.procs, ending.code, ending.then))
            decision = next_attempt(ended, self._retries)
            if not decision.go_on:
                raise ending.error
            world = world.model_copy(update={"procs": decision.procs})
            append_warning(
                work.folder.attempt(request.attempt),
                work.folder.session,
                request.attempt,
                f"{ending.error}\n  Attempt {request.attempt + 1} goes on from the last whole"
                f" checkpoint ({decision.reason}).",
            )
            follower.pass_on()

    def _attempt(self, work: _Work[ResultT], request: Request, follower: _Follower) -> Ending:
        """Run one attempt to its end; whoever stops following ends it."""
        command = self._command(request, work.folder.begin(request))
        folder, log = work.folder.attempt(request.attempt), work.folder.log(request.attempt)
        threads, s3 = request.world.threads, work.folder.checkpoints.startswith(S3_SCHEME)
        standstill, noticed = Standstill(folder, request.world.procs), None
        with ChildProcess.running(command, threads, log, self._grace, s3=s3) as child:
            while (code := child.exit_code()) is None:
                follower.pass_on()
                noticed = noticed or standstill.noticed(follower.passed_on)
                if noticed or follower.told_to_stop():
                    child.end()
                else:
                    time.sleep(_POLL_SECONDS)
        follower.pass_on()
        name = f"{work.pipeline}: attempt {request.attempt} of session {work.folder.session}"
        if noticed:
            return stood_still(name, noticed, log)
        events = follower.of_attempt(request.attempt)
        return judge(name, code, events, log, workers=request.world.procs > 1)

    def _command(self, request: Request, path: Path) -> list[str]:
        ranks = path.parent / "ranks"
        start = Start(self._program, request.world, ranks, self._grace, self._restarts)
        return start.command([request.verb, "--request", str(path)])


def _train_request(job: TrainJob, folder: SessionFolder, number: int, world: World) -> TrainRequest:
    return TrainRequest(
        session=folder.session,
        attempt=number,
        model=job.model,
        training=spread_over(job.training, world.procs),
        data=job.data,
        init=job.init,
        resume=folder.newest_checkpoint(),
        steps=job.steps,
        output=Output(
            checkpoints=folder.checkpoints,
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


def _measure_request(
    job: MeasureJob, folder: SessionFolder, number: int, world: World
) -> MeasureRequest:
    return MeasureRequest(
        session=folder.session,
        attempt=number,
        model=job.model,
        training=job.training,
        data=job.data,
        steps=job.steps,
        output=MeasureOutput(events=str(folder.events(number)), result=str(folder.result(number))),
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
