"""One pod of one attempt, from its request to its exit code: how it meets the others."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

from ml_assets.errors import StoreAway
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import Request
from ml_assets.spec.training_program.exit_codes import (
    EXIT_BUG,
    EXIT_DONE,
    EXIT_NOT_SAVED,
    VERDICTS,
    codes_in,
    of_last_start,
    true_code,
)
from ml_assets.spec.training_program.pod import UPLOAD_SECONDS
from ml_assets.spec.training_program.start import PROGRAM, TORCHRUN, Rendezvous, Start, variables
from ml_assets.store.retries import Deadline, persist
from ml_assets.store.s3.client import S3Place, client
from ml_assets.training.staging.outbox import Outbox, PodEnd, TerminationReporter
from ml_assets.training.staging.transfer import deliver, read_request, require_newest, stage
from ml_assets.training.stop import Stopped

T = TypeVar("T")
_POLL_SECONDS = 0.1
_VERDICT_SECONDS = 1.0
"""A torchrun that would only start a rank again ends so long after that rank's verdict."""
_BETWEEN_TRIES = 0.2
_TAIL_BYTES = 64 * 1024
_LAST_LINES_SECONDS = 5.0


@dataclass(frozen=True)
class NodeRendezvous:
    """The place where the pods meet, and the address by which the others reach this one."""

    endpoint: str
    """host:port of the first pod."""
    address: str
    index: int

    def of(self, session: str, attempt: int) -> Rendezvous:
        """The rendezvous as torchrun takes it."""
        run = f"{session}-a{attempt}"
        return Rendezvous(self.endpoint, self.address, is_host=self.index == 0, run=run)

    def wait_for_the_first(self) -> None:
        """Wait until the first pod listens: its image may come later than torchrun waits."""
        if self.index == 0:
            return
        from tenacity import Retrying, retry_if_exception_type, wait_fixed

        host, _, port = self.endpoint.rpartition(":")
        again = Retrying(retry=retry_if_exception_type(OSError), wait=wait_fixed(_BETWEEN_TRIES))
        again(socket.create_connection, (host, int(port)), timeout=5.0).close()


@dataclass(frozen=True)
class PodConfig:
    """The configuration of a pod: its command line, and which of the Job's pods it is."""

    request: str
    """``s3://.../sessions/<session>/attempts/<n>/request.json``"""
    scratch: Path
    index: int
    rendezvous: NodeRendezvous | None
    """None: there is one pod."""
    grace: float
    """Seconds that the program has to save after a notice."""
    data_cache: int | None = None
    """See ``stage``."""


class ChildProgram:
    """Started by the main thread: the kernel ends the program with the thread that started it.

    Args:
        command: None: torchrun, which is loaded and waits for ``begin``.
        grace: seconds from the notice to stop to its end.
    """

    def __init__(self, command: Sequence[str] | None, threads: int, grace: float) -> None:
        self._grace = grace
        self._told = float("inf")
        self._tail = bytearray()
        bound = [sys.executable, "-m", "ml_assets.training.orphans", *(command or [])]
        self._process = subprocess.Popen(
            [sys.executable, *TORCHRUN] if command is None else bound,
            stdin=subprocess.PIPE if command is None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables(threads)},
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._pump = threading.Thread(target=self._pass_on, args=[self._process.stdout])
        self._pump.daemon = True
        self._pump.start()

    def begin(self, command: Sequence[str], threads: int) -> None:
        """Tell the torchrun that waits its command line, whose first words are torchrun's own."""
        assert self._process.stdin is not None
        told = {"arguments": command[len(TORCHRUN) + 1 :], "variables": variables(threads)}
        with suppress(BrokenPipeError):  # it has ended: its code says why
            self._process.stdin.write(json.dumps(told).encode() + b"\n")
            self._process.stdin.close()

    def stop(self) -> None:
        """Tell it to save and stop, once; a signal handler may call this."""
        if self._told == float("inf"):
            self._told = time.monotonic()
            self._process.terminate()

    def kill(self) -> None:
        """End it now; its ranks end with it."""
        self._process.kill()

    def exit_code(self) -> int | None:
        """The exit code; None while it runs; negative: the signal that ended it. Ends the grace."""
        if time.monotonic() - self._told > self._grace:
            self.kill()
        return self._process.poll()

    def log(self) -> str:
        """The end of what it printed, once it has ended."""
        self._pump.join(_LAST_LINES_SECONDS)  # a rank that outlives torchrun holds the pipe
        return bytes(self._tail).decode(errors="replace")

    def _pass_on(self, pipe: IO[bytes]) -> None:
        while text := os.read(pipe.fileno(), 1 << 16):
            self._tail += text
            del self._tail[:-_TAIL_BYTES]
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()


class _Told(Exception):
    """A notice to stop came before the program was started."""


@dataclass
class Pod:
    """Fetches, runs, hands over. Whatever happens becomes a code and a termination message."""

    config: PodConfig
    _deadline: Deadline = field(default_factory=Deadline)
    _told: bool = False
    _program: ChildProgram | None = None

    def __post_init__(self) -> None:
        folder, _, self._file = self.config.request.rpartition("/")
        # `persist` asks again, and looks at the deadline between two tries
        self._place = S3Place(folder, client(tries=3, timeout=20.0))
        self._folder = self.config.scratch / "attempt"
        self._outbox = Outbox(self._folder, self._place, self.config.index)
        self._termination = TerminationReporter(self._folder, self._place, self.config.index)

    def on_notice(self, *_: object) -> None:
        """SIGTERM: passed on at once. It takes no lock: it runs in the midst of anything."""
        self._told = True
        self._deadline.within(self.config.grace + UPLOAD_SECONDS)
        if self._program is not None:
            self._program.stop()

    def run(self) -> int:
        """Work to the end.

        Returns:
            The program's true exit code; negative: the signal that ended it.
        """
        if self.config.rendezvous is not None:  # there will be a torchrun: it loads meanwhile
            threads = int(os.environ.get("OMP_NUM_THREADS", "1"))  # the ranks', read when it loads
            self._program = ChildProgram(None, threads, self.config.grace)
        try:
            end = self._worked(self._beside(self._prepared))
        except _Told:
            said = "it was told to stop before the program was started"
            end = PodEnd(-signal.SIGTERM, said, own=True)
        except Stopped as stop:
            end = PodEnd(stop.exit_code, str(stop), own=True)
        except StoreAway as error:
            end = PodEnd(EXIT_NOT_SAVED, str(error), own=True)
        except Exception as error:  # the last line of defence: everything is reported
            said = f"{type(error).__name__}: {error}"
            end = PodEnd(EXIT_BUG, said, traceback.format_exc(), own=True)
        if self._outbox.superseded is None:  # else the other pod reports
            self._termination.report(end, self._outbox, self._deadline)
        sys.stderr.write(f"[staging] pod {self.config.index} ends with {end.code}: {end.reason}\n")
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
        config = self.config
        local = stage(request, self._place, config.scratch, self._deadline, config.data_cache)
        (self._folder / self._file).write_bytes(canonical_json(local))
        if self.config.rendezvous is not None:
            self.config.rendezvous.wait_for_the_first()
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

    def _worked(self, request: Request) -> PodEnd:
        """Run the program to its end, and hand over what it made.

        Raises:
            Superseded: another pod or attempt does this work.
            NotSaved: what was made cannot be handed over.
            StoreAway: the store did not answer in time.
        """
        nodes = self.config.rendezvous
        start = Start(
            program=PROGRAM,
            world=request.world,
            logs=self.config.scratch / "ranks",
            grace=self.config.grace,
            rendezvous=nodes.of(request.session, request.attempt) if nodes else None,
        )
        program = self._started(start, request)
        if self._told:  # it came while the program was started
            program.stop()
        code = self._followed(program)
        log = program.log()
        self._outbox.end(self._deadline)
        end = self._judged(code, log, workers=start.workers)
        if deliver(request, self._place, self._deadline):
            return PodEnd(EXIT_DONE, "done")
        return end

    def _started(self, start: Start, request: Request) -> ChildProgram:
        arguments = [request.verb, "--request", str(self._folder / self._file)]
        command, threads = start.command(arguments), request.world.threads
        if self._program is None:
            self._program = ChildProgram(command, threads, self.config.grace)
        else:
            self._program.begin(command, threads)
        return self._program

    def _followed(self, program: ChildProgram) -> int:
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

    def _judged(self, code: int, log: str, *, workers: bool) -> PodEnd:
        """The true code of this pod, and what was said of it."""
        if code == EXIT_DONE:
            return PodEnd(code, "done")
        failed = of_last_start(self._outbox.failed)
        told = [event.exit_code for event in failed]
        true = true_code(code, [*told, *(codes_in(log) if workers else [])])
        if self._told and true not in told:
            return PodEnd(
                -signal.SIGTERM, "it was told to stop, and ended before it could save", log
            )
        said = next((event.reason for event in failed if event.exit_code == true), None)
        ended = f"signal {-true} ended it" if true < 0 else f"it ended with exit code {true}"
        return PodEnd(true, said or f"{ended} before it could say why", log)
