"""Programs that serve beside each other until one signal ends them all, or the first one ends.

Each stands behind a tether, so that none is left behind, even by a kill of this process.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from ml_assets.launch import tether

GRACE_SECONDS = 15.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Program:
    """A server as a command."""

    name: str
    command: tuple[str, ...]
    log: Path | None = None
    """Where its output goes; None: to the terminal."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to ours; not in repr, for an address may hold a password."""


class Stopped(Exception):
    """A signal asked for the end; caught where the servers are waited for."""


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and SIGINT end the block, also where a background shell left SIGINT ignored."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Stopped

    old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Stopped:
        return
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@contextmanager
def running(program: Program) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is gone, with all it started, when the block is left."""
    tied = (sys.executable, "-I", tether.__file__, str(os.getpid()), str(GRACE_SECONDS))
    with ExitStack() as stack:
        output = stack.enter_context(program.log.open("ab")) if program.log else None
        process = subprocess.Popen(
            [*tied, *program.command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **program.environment},
            start_new_session=True,  # a Ctrl-C reaches this process, which then ends them in order
        )
        try:
            yield process
        finally:
            _end(process)


def wait_for_first(
    processes: Sequence[tuple[Program, subprocess.Popen[bytes]]],
    tell: Callable[[str], None],
) -> int:
    """Wait until the first of the processes ends and return its exit code; tell of the others."""
    (_, leading), *others = processes
    while (code := leading.poll()) is None:
        for program, process in list(others):
            if process.poll() is not None:
                others.remove((program, process))
                tell(f"{program.name} ended with code {process.returncode}; see {program.log}")
        time.sleep(_POLL_SECONDS)
    return code


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(GRACE_SECONDS + 5)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait()
