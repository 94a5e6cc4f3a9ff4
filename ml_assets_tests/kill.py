"""Killing a piece of work at each of its steps, where it is about to change something."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.utime", "os.mkdir", "sqlite3.connect"}


def killed_at_every_step(work: Callable[[], object], stride: int = 1) -> Iterator[int]:
    """Do the work in a process that is killed at its n-th step; again and again until it is done.

    Yields:
        n, after each kill: what the killed process left is there to be looked at.
    """
    step = 1
    while not _finished(work, step):
        yield step
        step += stride


def _finished(work: Callable[[], object], step: int) -> bool:
    """Whether the work came to its end before the step at which it was to be killed."""
    child = os.fork()
    if child == 0:
        _kill_me_at(step)
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, "the work failed; its traceback is in the captured stderr"
    return True


def _kill_me_at(step: int) -> None:
    left = step

    def watch(event: str, _: tuple[object, ...]) -> None:
        nonlocal left
        if event in CHANGES:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
