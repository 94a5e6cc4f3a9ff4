"""Runs programs side by side until one signal, or the end of a required one, ends them all.

Each has a supervisor, so that none is left behind, even when this process is killed.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from ml_assets.errors import SettingsError
from ml_assets.launch.local import supervisor
from ml_assets.settings.addresses import require_free

GRACE_SECONDS = 15.0
_POLL_SECONDS = 0.2
_NEAR = 100
_LAST_PORT = 65535


@dataclass(frozen=True)
class Program:
    """A server as a command."""

    name: str
    command: tuple[str, ...]
    log: Path | None = None
    """Where its output goes; None: to the terminal, and the others end with it."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to ours; not in repr, for an address may hold a password."""


class Stopped(BaseException):
    """A signal asked for the end: no error, so nothing that takes errors takes it."""


class _Signal:
    """The first signal that asks for the end; a second one does not disturb the ending."""

    def __init__(self) -> None:
        self.came = False

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        if not self.came:
            self.came = True
            raise Stopped


_signal: ContextVar[_Signal | None] = ContextVar("signal", default=None)


def free_port(first: int) -> int:
    """The first port of the loopback address, from a given one on, that nobody uses.

    Raises:
        SettingsError: none of the next hundred is free.
    """
    for port in range(first, min(first + _NEAR, _LAST_PORT + 1)):
        with suppress(SettingsError):
            require_free("127.0.0.1", port, "", "")
            return port
    raise SettingsError(
        f"No port from {first} on is free, of the next {_NEAR}: choose another one for --port."
    )


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and SIGINT end the block, also where a background shell left SIGINT ignored.

    Python drops what is raised in a destructor: where the signal came in one, ``Programs`` see it.
    """
    asked = _Signal()
    token = _signal.set(asked)
    stop = asked.stop
    old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Stopped:
        return
    finally:
        _signal.reset(token)
        for number, handler in old.items():
            signal.signal(number, handler)


class Programs:
    """Programs that end together when the block is left, each with all that it started.

    Args:
        tell: is handed a line for each that ended by itself.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._running: list[tuple[Program, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> "Programs":
        return self

    def __exit__(self, *error: object) -> None:
        """Tell all first: their graces run side by side."""
        for _, process in self._running:
            _tell_to_end(process)
        end = time.monotonic() + GRACE_SECONDS + 5
        for _, process in self._running:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                process.wait()

    def start(self, program: Program) -> None:
        """Start one, whose process group a Ctrl-C does not reach: this process ends it."""
        _go_on()
        tied = (sys.executable, "-I", supervisor.__file__, str(os.getpid()), str(GRACE_SECONDS))
        with program.log.open("ab") if program.log else nullcontext() as output:
            process = subprocess.Popen(
                [*tied, *program.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **supervisor.safe_path(), **program.environment},
                start_new_session=True,
            )
        self._running.append((program, process))

    def wait(self, until: Callable[[], bool] = lambda: False) -> int:
        """Wait until something holds, or one has ended that writes to the terminal: its exit code.

        One with a log of its own is beside the others: its end is told, and they go on.
        """
        told: set[int] = set()
        while not until():
            _go_on()
            for program, process in self._running:
                code = process.poll()
                if code is None or process.pid in told:
                    continue
                told.add(process.pid)
                seen = f"; see {program.log}" if program.log else ""
                self._tell(f"{program.name} ended with code {code}{seen}")
                if program.log is None:
                    return code
            time.sleep(_POLL_SECONDS)
        return 0


def _go_on() -> None:
    """Return where no signal has asked for the end.

    Raises:
        Stopped: one has.
    """
    asked = _signal.get()
    if asked and asked.came:
        raise Stopped


def _tell_to_end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
