"""Reads the pods' logs: one is followed as it grows, of the others the ends are read."""

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self

from ml_assets.errors import ClusterRefused
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.calls import NoAnswer
from ml_assets.launch.kubernetes.informer import wait_after
from ml_assets.launch.kubernetes.observations import PodState
from ml_assets.launch.kubernetes.resources import Lines

LONGEST_WAIT = 60.0
"""Seconds between two looks at a log that does not grow or cannot be read."""
_MARGIN_SECONDS = 10
"""Asked for again at a reconnection; what was written already is left out."""
_LAST_SECONDS = 1.0
"""For the end of a log, when nobody follows it any more: an attempt that is lost does not wait."""
_JOIN_SECONDS = 5.0
_TAIL_LINES = 50
_TAILS = 4
"""Pods whose ends are read: of hundreds that failed, the first ones say why."""
_NOT_YET, _GONE = 400, 404
_STAMPED = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(\S*) (.*)", re.DOTALL)


class LogFollower:
    """Writes a pod's log into a file, each line once, whatever breaks; a context manager.

    A file that a former follower began is continued.

    Args:
        clock: monotonic seconds.
    """

    def __init__(
        self, api: KubernetesApi, file: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._file = file
        self._clock = clock
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._stream: Lines | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Take what is still to come, for a moment, and end."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_LAST_SECONDS)
            self._closed = True
            if self._stream is not None:
                self._stream.close()
            self._thread.join(_JOIN_SECONDS)

    def follow(self, pod: str) -> None:
        """Begin to follow a pod, whose container may be to come; once begun, nothing more."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=[pod], name=f"log {pod}", daemon=True
            )
            self._thread.start()

    def _run(self, pod: str) -> None:
        with suppress(OSError):  # a full disk costs the log, not the training
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a+b") as out:
                written, quiet, last = _Written(out, self._clock), 0, False
                while self._read(pod, written) and not last and not self._closed:
                    quiet = 1 if written.grew() else quiet + 1
                    last = self._stopping.wait(wait_after(quiet, LONGEST_WAIT))

    def _read(self, pod: str, written: "_Written") -> bool:
        """Write what one connection gives; whether there may be more."""
        try:
            self._stream = self._api.log(pod, written.since())
            written.take(self._stream)
        except NoAnswer:
            return True
        except ClusterRefused as refused:
            if refused.status not in {_NOT_YET, _GONE}:
                written.note(f"(the log cannot be read: {refused})")
            return refused.status == _NOT_YET
        finally:
            if self._stream is not None:
                self._stream.close()
        return True


class _Written:
    """The file, and how far into the log it goes."""

    def __init__(self, out: BinaryIO, clock: Callable[[], float]) -> None:
        self._out = out
        self._clock = clock
        self._taken_at: float | None = None
        self._last = b""
        self._at_last = 0  # lines of that time that are written
        self._grew = False
        self._former = _whole_lines(out)

    def since(self) -> int | None:
        """Return how young the next connection's lines have to be, in seconds; None: all."""
        if self._taken_at is None:
            return None
        return int(self._clock() - self._taken_at) + _MARGIN_SECONDS

    def grew(self) -> bool:
        """Return whether there were new lines since this was asked last."""
        grew, self._grew = self._grew, False
        return grew

    def take(self, lines: Iterable[bytes]) -> None:
        """Write those that are new: each has the time at which it was printed."""
        known, left = self._last, self._at_last
        for line in lines:
            stamp, text = _split(line)
            if stamp < known:
                continue
            if stamp == known and left:
                left -= 1
                continue
            if stamp >= self._last:
                self._at_last = self._at_last + 1 if stamp == self._last else 1
                self._last = stamp
            self._taken_at, self._grew = self._clock(), True
            self._write(text)

    def note(self, text: str) -> None:
        """A line of our own."""
        self._out.write(f"{text}\n".encode())
        self._out.flush()

    def _write(self, text: bytes) -> None:
        """A former follower wrote the first lines, where they are the same."""
        if self._former:
            known = self._former.popleft()
            if known == text:
                return
            self._former.clear()
        self._out.write(text + b"\n")
        self._out.flush()


def tails(api: KubernetesApi, pods: Sequence[PodState]) -> str:
    """The ends of the logs of the first of these pods, each under its name.

    What cannot be read is left out: it is wanted for an explanation, and is none itself.
    """
    read = [(pod, api.tail(pod.name, _TAIL_LINES)) for pod in pods[:_TAILS]]
    return "\n".join(
        f"--- the end of the log of {pod.name} (on {pod.node}) ---\n{end}"
        for pod, end in read
        if end
    )


def _split(line: bytes) -> tuple[bytes, bytes]:
    """The time, comparable byte by byte, and the text; a line without a time is of no time."""
    parts = _STAMPED.fullmatch(line)
    if parts is None:
        return b"", line
    second, fraction, zone, text = parts.groups()
    return second + b"." + (fraction or b"").ljust(9, b"0") + zone, text


def _whole_lines(out: BinaryIO) -> deque[bytes]:
    """What a file holds; a line that was cut off is taken away."""
    out.seek(0)
    text = out.read()
    whole = text[: text.rfind(b"\n") + 1]
    out.truncate(len(whole))
    return deque(whole.split(b"\n")[:-1])
