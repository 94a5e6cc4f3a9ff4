"""A container as a local process: the first of a process group, with all that it starts."""

import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import psutil

from ml_assets_tests.servers.kubernetes.clock import Clock
from ml_assets_tests.servers.kubernetes.logs import Log

_MARK = "KUBELET_CONTAINER"
"""The variable by which a container's processes are found when its first one has ended."""


class ContainerProcess:
    """Started at once; `on_exit` is called, in a thread of its own, when all of it has ended."""

    def __init__(
        self,
        argv: list[str],
        environment: dict[str, str],
        folder: Path,
        log: Log,
        clock: Clock,
        on_exit: Callable[[], None],
    ) -> None:
        self.id = uuid.uuid4().hex
        self.log = log
        self.out_of_memory = False
        self.exit_code: int | None = None
        self.ended: datetime | None = None
        self._clock = clock
        self._on_exit = on_exit
        self._process = subprocess.Popen(
            argv,
            env={**environment, _MARK: self.id},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.started = clock.now()
        self._reader = threading.Thread(target=self._read, name="container log", daemon=True)
        self._waiter = threading.Thread(target=self._wait, name="container", daemon=True)
        self._reader.start()
        self._waiter.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def terminate(self) -> None:
        """TERM to the first process only. As in a container, the kernel drops a signal that the
        first process of a pid namespace has no handler for."""
        if self.exit_code is None and _listens(self.pid, signal.SIGTERM):
            self._send(signal.SIGTERM)

    def kill(self) -> None:
        if self.exit_code is None:
            self._send(signal.SIGKILL)

    def run_out_of_memory(self) -> None:
        """What the kernel does at the limit."""
        self.out_of_memory = True
        self.kill()

    def memory(self) -> int:
        """Bytes resident in the container's processes."""
        total = 0
        for process in self._family():
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue
        return total

    def join(self) -> None:
        self._waiter.join()

    def _family(self) -> list[psutil.Process]:
        try:
            if sys.platform == "linux":
                return [psutil.Process(pid) for pid in (self.pid, *_children(self.pid))]
            first = psutil.Process(self.pid)
            return [first, *first.children(recursive=True)]
        except (psutil.Error, OSError):
            return []

    def _send(self, number: signal.Signals) -> None:
        try:
            self._process.send_signal(number)
        except ProcessLookupError:
            return

    def _read(self) -> None:
        assert self._process.stdout is not None
        rest = b""
        with self._process.stdout as pipe:
            while data := os.read(pipe.fileno(), 1 << 16):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self.log.append(line + b"\n")
        if rest:
            self.log.append(rest + b"\n")

    def _wait(self) -> None:
        """With its first process a container ends: the kernel kills the rest of the namespace."""
        code = self._process.wait()
        for process in _marked(self.id):
            process.kill()
        self._reader.join(5)
        self.log.close()
        self.ended = self._clock.now()
        self.exit_code = 128 - code if code < 0 else code
        self._on_exit()


def _marked(mark: str) -> Iterator[psutil.Process]:
    """The processes that were started inside a container, wherever they stand in the tree."""
    wanted = f"{_MARK}={mark}".encode()
    for pid in psutil.pids():
        try:
            process = psutil.Process(pid)
            if wanted in _environment(process):
                yield process
        except (psutil.Error, OSError):
            continue


def _children(pid: int) -> Iterator[int]:
    """All descendants, by the kernel's own lists: no walk over all processes."""
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in listed.read_text().split():
            yield int(child)
            yield from _children(int(child))


def _environment(process: psutil.Process) -> bytes:
    if sys.platform == "linux":
        return Path(f"/proc/{process.pid}/environ").read_bytes()
    return f"{_MARK}={process.environ().get(_MARK, '')}".encode()


def _listens(pid: int, number: signal.Signals) -> bool:
    """Whether a process handles a signal; where that cannot be seen, it is taken to."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return sys.platform != "linux"
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)
