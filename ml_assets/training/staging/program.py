"""The training program of one pod: started, told to stop, and what it printed."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from ml_assets.spec.program.start import TORCHRUN, variables

_TAIL_BYTES = 64 * 1024
_LAST_LINES_SECONDS = 5.0


class Program:
    """Started by the main thread: the kernel ends the program with the thread that started it.

    Args:
        command: None: torchrun, which is loaded and waits for ``begin``.
        grace: seconds from the notice to stop to its end.
    """

    def __init__(self, command: Sequence[str] | None, threads: int, grace: float) -> None:
        self._grace = grace
        self._told = float("inf")
        self._tail = bytearray()
        bound = [sys.executable, "-m", "ml_assets.training.staging.bound"]
        self._process = subprocess.Popen(
            [*bound, *(command or [])],
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
        """None while it runs; negative: the signal that ended it. The grace is held to here."""
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
