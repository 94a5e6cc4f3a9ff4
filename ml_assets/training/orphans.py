"""No process outlives the one that started it.

``python -m ml_assets.training.orphans COMMAND...`` becomes the command and ends with its parent.
The pod's first process starts the program through it. A container's processes all end with its
first one; anywhere else the program would outlive it, and train on as an orphan.
"""

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Ask the kernel (Linux), or watch (elsewhere), so that this process ends with its parent."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the kernel was asked
            os._exit(1)
        return
    threading.Thread(target=_watch, args=[parent], daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    end_with_parent()
    os.execv(sys.argv[1], sys.argv[1:])  # the kernel keeps the promise across it
