"""The cluster's time: it may run faster than ours, and a test may move it forwards."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class Clock:
    """Seconds since the start, and the same as a date. All waits of the server go by it."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._began = datetime.now(UTC)
        self._ahead = 0.0
        self._listeners: list[Callable[[], None]] = []

    def seconds(self) -> float:
        """Seconds of the cluster's time since it was made; never goes backwards."""
        with self._lock:
            return (time.monotonic() - self._start) * self.speed + self._ahead

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self.seconds())

    def real(self, seconds: float) -> float:
        """How long our own clock waits for `seconds` of the cluster's."""
        return max(0.0, seconds / self.speed)

    def advance(self, seconds: float) -> None:
        """Move the time forwards; what was waiting for it happens now."""
        with self._lock:
            self._ahead += seconds
        for listener in list(self._listeners):
            listener()

    def on_advance(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)


def stamp(when: datetime) -> str:
    """`metav1.Time`: whole seconds, UTC."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_stamp(when: datetime) -> str:
    """`metav1.MicroTime`, and what the log shows with `timestamps`."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read_stamp(text: str) -> datetime:
    """The time that a stamp, in whole seconds or with a fraction, stands for."""
    whole = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return whole if whole.tzinfo else whole.replace(tzinfo=UTC)
