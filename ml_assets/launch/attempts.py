"""The attempts of one session, whoever runs them: created or adopted, followed, made again.

A runner starts an attempt: processes here, or a Job on a cluster. This module decides for both when
another attempt is made, on what, and what is reported.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from ml_assets.errors import MlAssetsError, TrainingFailed, TrainingInterrupted
from ml_assets.launch.events import SessionReader, avoided_nodes, session_events
from ml_assets.launch.failure import Ending
from ml_assets.launch.launcher import OnEvent, ShouldStop
from ml_assets.launch.next_attempt import Budgets, EndedAttempt, RetryDecision, next_attempt
from ml_assets.launch.session_folder import SessionFolder, sign_result
from ml_assets.launch.usage import end_of, held_here, keep_usage, usage_of
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.memory_estimate import Room
from ml_assets.spec.training_program import (
    MeasureResult,
    Request,
    SanityResult,
    ScoreResult,
    TrainResult,
    World,
)
from ml_assets.spec.training_program.events import Checkpoint, Event, Lost
from ml_assets.spec.training_program.identity import Program
from ml_assets.store.retries import Deadline, persist
from ml_assets.store.signing import Keys

POLL_SECONDS = 0.1
T = TypeVar("T")
ResultT = TypeVar("ResultT", TrainResult, ScoreResult, MeasureResult, SanityResult)


@dataclass(frozen=True)
class SessionWork(Generic[ResultT]):
    """Holds what a session is asked to do, whichever verb it is."""

    pipeline: str
    verb: str
    folder: SessionFolder
    world: World
    request: Callable[[int, World], Request]
    """The request of an attempt, from its number and its processes."""
    finished: Callable[[], ResultT | None]
    cluster: ClusterSpec
    """Where it runs if that is a cluster."""
    keys: Keys | None = None
    """Sign the result with them; None: it needs no signature."""
    spot: bool = False
    """It may run on machines that are taken away."""
    asked: str = ""
    """A digest of what a training asks for, whichever program does it; empty: another verb."""
    only_what_runs: bool = False
    """It is of an older program: what runs is followed, and no attempt is begun."""

    def name(self, attempt: int) -> str:
        """Return what an operator calls an attempt."""
        return f"{self.pipeline}: attempt {attempt} of session {self.folder.session}"


@dataclass
class Follower:
    """Passes a session's events on, each once, and remembers those of the last attempt."""

    reader: SessionReader
    on_event: OnEvent
    should_stop: ShouldStop
    passed_on: int = 0
    _told: bool = False
    _last: list[Event] = field(default_factory=list)

    def pass_on(self) -> None:
        """Pass on what came since."""
        for event in self.reader.new():
            if self._last and self._last[-1].attempt != event.attempt:
                self._last.clear()
            self._last.append(event)
            self.passed_on += 1
            self.on_event(event)

    def wait(self) -> None:
        """Pass on what the attempts of a session tell that another process has.

        Raises:
            TrainingInterrupted: this follower was told to stop; the other process goes on.
        """
        self.pass_on()
        if self.told_to_stop():
            raise TrainingInterrupted(
                "This command stopped watching. The session continues in its own process."
            )
        time.sleep(POLL_SECONDS)

    def told_to_stop(self) -> bool:
        """Return whether it was ever told to."""
        self._told = self._told or self.should_stop()
        return self._told

    def persist(self, asked: Callable[[], T], work: SessionWork[Any], attempt: int | None) -> T:
        """Return what a store says that may be away for a while.

        Args:
            asked: may be repeated.
            attempt: its stream tells that the store is away; None: there was none, so that the
                store never answered: its address may be wrong, and that is told at once.

        Raises:
            StoreAway: for too long, or this follower was told to stop.
        """
        if attempt is None:
            return asked()

        limit = Deadline(pause=lambda seconds: self._pause(seconds, limit))
        warned = False

        def warn(error: BaseException, _: float) -> None:
            nonlocal warned
            if not warned:
                warned = True
                message = f"The object store does not answer. It will be asked again: {error}"
                work.folder.warn(attempt, message)
                self.pass_on()

        return persist(asked, limit, tell=warn)

    def _pause(self, seconds: float, limit: Deadline) -> None:
        """Wait a moment; whoever was told to stop waits no longer."""
        time.sleep(min(seconds, POLL_SECONDS))
        if self.told_to_stop():
            limit.within(0)

    def of_attempt(self, number: int) -> list[Event]:
        """Return what the last attempt told, if that is its number."""
        return [event for event in self._last if event.attempt == number]


class AttemptRunner(Protocol):
    """Runs one attempt at a time, wherever that is."""

    def spread(self, world: World, cluster: ClusterSpec) -> World:
        """The processes of a training, as many of them on each node as run there.

        Args:
            world: all on one node.
        """
        ...

    def room(self, cluster: ClusterSpec) -> Room:
        """What the processes of one node share."""
        ...

    def recall(self, folder: SessionFolder) -> None:
        """Bring what is known of a session elsewhere into its folder."""
        ...

    def older(self, asked: str, session: str) -> Program | None:
        """The program of another session that asks for the same and still has a Job.

        Args:
            session: that asks now: it is none of them.
        """
        ...

    def adopt(self, work: SessionWork[Any]) -> Request | None:
        """The request of an attempt that goes on elsewhere, or ended there with nobody watching.

        Its folder is here then, as are those of all attempts that are known.
        """
        ...

    def run(self, work: SessionWork[Any], request: Request, follower: Follower) -> Ending:
        """Run an attempt, or go on following it, until it is over.

        A result that it has lies in the session's folder then. A follower who is told to stop ends
        it; what happens to it when an exception ends the follower is the runner's to say.
        """
        ...

    def leave(self, work: SessionWork[Any]) -> None:
        """No attempt follows: see that nothing of the session's goes on anywhere."""
        ...


def run_session(
    work: SessionWork[ResultT],
    runner: AttemptRunner,
    budgets: Budgets,
    on_event: OnEvent,
    should_stop: ShouldStop,
) -> ResultT:
    """Create or adopt. Whoever comes gets every event of the session, and its one result.

    Raises:
        TrainingFailed: it ended without a result, for good or as often as the budgets allow.
        TrainingInterrupted: it was told to stop, and saved.
    """
    follower = Follower(SessionReader(work.folder.root), on_event, should_stop)
    with work.folder.held(follower.wait):
        follower.pass_on()
        done = work.finished()
        if done is not None:
            return done
        work.folder.write_session_file(work.pipeline, work.verb)
        return _attempts(work, runner, budgets, follower)


def _attempts(
    work: SessionWork[ResultT], runner: AttemptRunner, budgets: Budgets, follower: Follower
) -> ResultT:
    """Attempts until one has a whole result, or ends for good, or its budget is spent."""
    world, ended, last = work.world, list[EndedAttempt](), None
    while True:
        request = follower.persist(partial(runner.adopt, work), work, last)
        follower.pass_on()
        if request is None:
            if (done := work.finished()) is not None:  # elsewhere, and now known here
                return done
            if work.only_what_runs:
                raise TrainingFailed(
                    f"The Job of session {work.folder.session} is gone and left no result."
                )
            request = follower.persist(partial(_new, work, world), work, last)
            work.folder.begin(request)
        began = datetime.now(UTC)
        ending = runner.run(work, request, follower)
        follower.pass_on()
        if work.keys is not None:
            sign_result(work.folder.result(request.attempt), work.keys)
        done = work.finished()  # whole whatever ended it: a crash after the result is no loss
        told = follower.of_attempt(request.attempt)
        end = "done" if done is not None else end_of(ending)
        held = ending.held or held_here(request, began, datetime.now(UTC), told)
        keep_usage(work.folder, usage_of(work.pipeline, request, held, end, told))
        saved = any(isinstance(event, Checkpoint) for event in told)
        ended.append(EndedAttempt(request.world, ending, saved))
        last, avoided = request.attempt, avoided_nodes(session_events(work.folder.root))
        decision = next_attempt(ended, budgets, work.cluster.min_nodes, avoided)
        begun_elsewhere = ending.cause == "Superseded"
        go_on = decision.go_on and (begun_elsewhere or not work.only_what_runs)
        if done is not None or follower.told_to_stop() or not go_on:
            runner.leave(work)
            follower.pass_on()
            if done is not None:
                return done
            raise _final(work, last, ending, decision, told_to_stop=follower.told_to_stop())
        _warn(work, request, ending, decision)
        follower.pass_on()
        world = decision.world


def _new(work: SessionWork[Any], world: World) -> Request:
    """What another attempt is asked to do."""
    return work.request(work.folder.next_attempt(), world)


def _final(
    work: SessionWork[Any],
    number: int,
    ending: Ending,
    decision: RetryDecision,
    *,
    told_to_stop: bool,
) -> MlAssetsError:
    """The error of the last attempt, and why there is none after it where that is not plain."""
    error = ending.error(work.name(number), work.folder.log(number))
    if told_to_stop:
        return TrainingInterrupted(str(error))
    if ending.then in ("stop", "interrupted"):
        return error
    return type(error)(f"{error}\n  No other attempt is made: {decision.reason}.")


def _warn(
    work: SessionWork[Any], request: Request, ending: Ending, decision: RetryDecision
) -> None:
    """Say in the stream what happened and what comes, so that followers and replays know it too."""
    folder, attempt = work.folder, request.attempt
    error = ending.error(work.name(attempt), folder.log(attempt))
    message = (
        f"{error}\n"
        f"  Attempt {request.attempt + 1} continues from the last whole checkpoint "
        f"({decision.reason})."
    )
    lost = Lost(
        attempt=attempt,
        cause=ending.cause,
        kind=ending.kind,
        what=ending.summary,
        exit_code=ending.code or None,
        pod=ending.pod,
        node=ending.node,
        world=request.world,
        goes_on=decision.world,
        avoid=decision.avoid,
    )
    folder.warn(attempt, message, lost)
