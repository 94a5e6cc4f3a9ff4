"""The one thread that runs all controllers: what is due, in turn, each key once."""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Hashable

from ml_assets_tests.servers.kubernetes.clock import Clock

_log = logging.getLogger(__name__)

Work = Callable[[], None]


class Loop:
    """`soon` runs a piece of work as soon as possible, `after` once a time has passed.

    Work under a key that already waits is not queued twice. An error in a piece of work is kept
    in `failures`, which the fixture shows: the server itself must never be what is wrong.
    """

    def __init__(self, clock: Clock) -> None:
        self.failures: list[BaseException] = []
        self._clock = clock
        self._wake = threading.Condition()
        self._ready: dict[Hashable, Work] = {}
        self._timers: list[tuple[float, int, Hashable, Work]] = []
        self._count = itertools.count()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="controllers", daemon=True)
        clock.on_advance(self._poke)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def soon(self, key: Hashable, work: Work) -> None:
        with self._wake:
            self._ready.setdefault(key, work)
            self._wake.notify()

    def after(self, seconds: float, key: Hashable, work: Work) -> None:
        """Once `seconds` of the cluster's time have passed."""
        with self._wake:
            due = self._clock.seconds() + max(0.0, seconds)
            heapq.heappush(self._timers, (due, next(self._count), key, work))
            self._wake.notify()

    def _poke(self) -> None:
        with self._wake:
            self._wake.notify()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except Exception as error:
                _log.exception("a controller failed")
                self.failures.append(error)

    def _next(self) -> Work | None:
        with self._wake:
            while not self._stopping:
                now = self._clock.seconds()
                while self._timers and self._timers[0][0] <= now:
                    _, _, key, work = heapq.heappop(self._timers)
                    self._ready.setdefault(key, work)
                if self._ready:
                    return self._ready.pop(next(iter(self._ready)))
                wait = self._clock.real(self._timers[0][0] - now) if self._timers else None
                self._wake.wait(wait)
            return None
