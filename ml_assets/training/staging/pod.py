"""One pod of one attempt, from its request to its exit code."""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ml_assets.errors import StoreAway
from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.program import Request
from ml_assets.spec.program.exit_codes import (
    EXIT_BUG,
    EXIT_DONE,
    EXIT_NOT_SAVED,
    VERDICTS,
    codes_in,
    of_last_start,
    true_code,
)
from ml_assets.spec.program.pod import UPLOAD_SECONDS
from ml_assets.spec.program.start import Start
from ml_assets.store.s3.client import S3Place, client
from ml_assets.training.staging.delivery import deliver, require_newest
from ml_assets.training.staging.inputs import read_request, stage
from ml_assets.training.staging.outbox import Outbox
from ml_assets.training.staging.persistence import Deadline, persist
from ml_assets.training.staging.program import Program
from ml_assets.training.staging.rendezvous import Meeting
from ml_assets.training.staging.termination_message import End, LastWord
from ml_assets.training.stop import Stopped

T = TypeVar("T")
PROGRAM = (sys.executable, "-m", "ml_assets.training")
_POLL_SECONDS = 0.1
_VERDICT_SECONDS = 1.0
"""From a rank's verdict to the end of a torchrun that would only start it again."""


@dataclass(frozen=True)
class Orders:
    """What a pod is told on its command line, and which of the Job's pods it is."""

    request: str
    """``s3://.../sessions/<session>/attempts/<n>/request.json``"""
    scratch: Path
    index: int
    meeting: Meeting | None
    """None: there is one pod."""
    grace: float
    """Seconds that the program has to save after a notice."""


class _Told(Exception):
    """A notice to stop came before the program was started."""


@dataclass
class Pod:
    """Fetches, runs, hands over. Whatever happens becomes a code, an event and a last word."""

    orders: Orders
    _deadline: Deadline = field(default_factory=Deadline)
    _told: bool = False
    _program: Program | None = None

    def __post_init__(self) -> None:
        folder, _, self._file = self.orders.request.rpartition("/")
        # `persist` asks again, and looks at the deadline between two tries
        self._place = S3Place(folder, client(tries=3, timeout=20.0))
        self._folder = self.orders.scratch / "attempt"
        self._outbox = Outbox(self._folder, self._place, self.orders.index)
        self._word = LastWord(self._folder, self._place, self.orders.index)

    def on_notice(self, *_: object) -> None:
        """SIGTERM: passed on at once. It takes no lock: it runs in the midst of anything."""
        self._told = True
        self._deadline.within(self.orders.grace + UPLOAD_SECONDS)
        if self._program is not None:
            self._program.stop()

    def run(self) -> int:
        """Work to the end.

        Returns:
            The program's true exit code; negative: the signal that ended it.
        """
        if self.orders.meeting is not None:  # there will be a torchrun: it loads meanwhile
            self._program = Program(None, 1, self.orders.grace)
        try:
            end = self._worked(self._beside(self._prepared))
        except _Told:
            said = "it was told to stop before the program was started"
            end = End(-signal.SIGTERM, said, own=True)
        except Stopped as stop:
            end = End(stop.exit_code, str(stop), own=True)
        except StoreAway as error:
            end = End(EXIT_NOT_SAVED, str(error), own=True)
        except Exception as error:  # the last line of defence: everything becomes a last word
            said = f"{type(error).__name__}: {error}"
            end = End(EXIT_BUG, said, traceback.format_exc(), own=True)
        if self._outbox.superseded is None:  # else the other pod has the last word
            self._word.say(end, self._outbox, self._deadline)
        sys.stderr.write(f"[staging] pod {self.orders.index} ends with {end.code}: {end.reason}\n")
        return end.code

    # --- before ---------------------------------------------------------------------------------

    def _prepared(self) -> Request:
        """The request, with all that it reads here.

        Raises:
            Stopped: it cannot be done, or a newer attempt began.
            StoreAway: the store did not answer in time.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        if temporary := os.environ.get("TMPDIR"):  # on the scratch volume, which begins empty
            Path(temporary).mkdir(parents=True, exist_ok=True)
        request = read_request(self._place, self._file, self._deadline)
        persist(lambda: require_newest(self._place, request.attempt), self._deadline)
        self._outbox.begin(self._deadline)
        local = stage(request, self._place, self.orders.scratch, self._deadline)
        (self._folder / self._file).write_bytes(canonical_json(local))
        if self.orders.meeting is not None:
            self.orders.meeting.wait_for_the_first()
        return local

    def _beside(self, work: Callable[[], T]) -> T:
        """Work in a thread, so that a notice ends the pod at once, whatever it waits for.

        Raises:
            _Told: a notice came.
        """
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=run, name="staging", daemon=True).start()
        while not done.done():
            self._require_no_notice()
            time.sleep(_POLL_SECONDS)
        self._require_no_notice()
        return done.result()

    def _require_no_notice(self) -> None:
        if self._told:
            raise _Told

    # --- the work -------------------------------------------------------------------------------

    def _worked(self, request: Request) -> End:
        """Run the program to its end, and hand over what it made.

        Raises:
            Superseded: another pod or attempt does this work.
            NotSaved: what was made cannot be handed over.
            StoreAway: the store did not answer in time.
        """
        meeting = self.orders.meeting
        start = Start(
            program=PROGRAM,
            world=request.world,
            logs=self.orders.scratch / "ranks",
            grace=self.orders.grace,
            rendezvous=meeting.rendezvous(request.session, request.attempt) if meeting else None,
        )
        program = self._started(start, request)
        if self._told:  # it came while the program was started
            program.stop()
        code = self._followed(program)
        log = program.log()
        self._outbox.end(self._deadline)
        end = self._judged(code, log, workers=start.workers)
        if deliver(request, self._place, self._deadline):
            return End(EXIT_DONE, "done")
        return end

    def _started(self, start: Start, request: Request) -> Program:
        arguments = [request.verb, "--request", str(self._folder / self._file)]
        command, threads = start.command(arguments), request.world.threads
        if self._program is None:
            self._program = Program(command, threads, self.orders.grace)
        else:
            self._program.begin(command, threads)
        return self._program

    def _followed(self, program: Program) -> int:
        """The code of the process that was started; it is ended where it would go on in vain."""
        since = float("inf")
        while (code := program.exit_code()) is None:
            if self._outbox.superseded is not None:
                program.kill()
            if {event.exit_code for event in of_last_start(self._outbox.failed)} & VERDICTS:
                since = min(since, time.monotonic())
            if time.monotonic() - since > _VERDICT_SECONDS:
                program.stop()
            time.sleep(_POLL_SECONDS)
        return code

    def _judged(self, code: int, log: str, *, workers: bool) -> End:
        """The true code of this pod, and what was said of it."""
        if code == EXIT_DONE:
            return End(code, "done")
        failed = of_last_start(self._outbox.failed)
        told = [event.exit_code for event in failed]
        true = true_code(code, [*told, *(codes_in(log) if workers else [])])
        if self._told and true not in told:
            return End(-signal.SIGTERM, "it was told to stop, and ended before it could save", log)
        said = next((event.reason for event in failed if event.exit_code == true), None)
        ended = f"signal {-true} ended it" if true < 0 else f"it ended with exit code {true}"
        return End(true, said or f"{ended} before it could say why", log)
