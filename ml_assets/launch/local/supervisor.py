"""Runs one command and leaves nothing of it behind: not when it ends, not when its launcher dies.

``python supervisor.py LAUNCHER_PID GRACE_SECONDS COMMAND...``. A program of its own on the standard
library, because the other ways fail: ``preexec_fn`` is not safe in a process with threads, Linux's
PR_SET_PDEATHSIG follows the *thread* that forked and ends at the next fork, and torchrun puts its
workers into sessions of their own, where no signal to a process group finds them. This process
watches its parent, and on Linux is the subreaper of everything below it: a worker whose torchrun
was killed becomes its child, and is ended. Elsewhere the program's ranks watch their own parent.

SIGTERM: the command was told too (same group); end what is left after the grace. SIGQUIT: now.
Exit code: the command's; 128 + n where signal n ended it.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

SIGNALLED = 128
"""Exit codes above this say which signal ended the command."""
_POLL_SECONDS = 0.05
_SWEEP_SECONDS = 10.0
_PR_SET_CHILD_SUBREAPER = 36


def safe_path() -> dict[str, str]:
    """The environment in which Python imports nothing from the folder that a command is called in:
    a ``numpy.py`` that came with somebody's data would be run. Empty where this package itself may
    be imported from there."""
    try:
        in_checkout = Path.cwd() == Path(__file__).parents[3]
    except OSError:  # the folder is gone
        in_checkout = False
    return {} if in_checkout else {"PYTHONSAFEPATH": "1"}


class _Deadline:
    """When the command has to be gone; moved closer by signals, never away."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self.at = float("inf")

    def on_notice(self, _number: int, _frame: FrameType | None) -> None:
        self.at = min(self.at, time.monotonic() + self._grace)

    def on_quit(self, _number: int, _frame: FrameType | None) -> None:
        self.at = time.monotonic()


def main(arguments: Sequence[str]) -> int:
    """Run the command to its end, or to the end of its launcher."""
    launcher, grace, command = int(arguments[0]), float(arguments[1]), arguments[2:]
    deadline = _Deadline(grace)
    signal.signal(signal.SIGTERM, deadline.on_notice)
    signal.signal(signal.SIGQUIT, deadline.on_quit)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    process = subprocess.Popen(command)  # exec gives SIGTERM and SIGQUIT back their default
    while process.poll() is None:
        if os.getppid() != launcher or time.monotonic() >= deadline.at:
            break
        time.sleep(_POLL_SECONDS)
    code = process.poll()
    _sweep(everything=code is None)
    code = process.wait() if code is None else code
    return code if code >= 0 else SIGNALLED - code


def _sweep(*, everything: bool) -> None:
    """End all that descends from this process and is still there."""
    if sys.platform != "linux":
        if everything:
            os.killpg(0, signal.SIGKILL)  # this process too: its launcher reads the signal
        return
    give_up = time.monotonic() + _SWEEP_SECONDS
    while (left := descendants(os.getpid())) and time.monotonic() < give_up:
        for pid in left:
            _kill(pid)
        time.sleep(0.01)


def descendants(root: int) -> list[int]:
    """Living processes below ``root``, from /proc; a zombie is not living."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):  # it ended while we looked
            continue
        if state not in "ZX":
            parents[int(entry.name)] = int(parent)
    found: list[int] = []
    edge = {root}
    while edge:
        edge = {pid for pid, parent in parents.items() if parent in edge}
        found.extend(edge)
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
