"""Planned faults of the API itself: answers that are refused, late, cut, or that never come."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ml_assets_tests.servers.kubernetes import errors
from ml_assets_tests.servers.kubernetes.access import Wish
from ml_assets_tests.servers.kubernetes.errors import ApiError

_WORDS = {
    409: ("Conflict", "the object has been modified; please apply your changes to the latest"),
    410: ("Expired", "The resourceVersion for the provided watch is too old."),
    429: ("TooManyRequests", "too many requests, please try again later"),
    500: ("InternalError", "Internal error occurred: etcdserver: leader changed"),
    502: ("", "bad gateway"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
}


@dataclass
class Fault:
    """What happens to the next `times` calls that match; an empty word matches all."""

    kind: str
    """refuse, late, reset, reset after (the call is done, its answer is lost), stall, gone,
    repeat."""
    times: int
    verb: str = ""
    resource: str = ""
    code: int = 0
    seconds: float = 0.0

    def fits(self, wish: Wish) -> bool:
        return self.verb in ("", wish.verb) and self.resource in ("", wish.resource)

    def error(self) -> ApiError:
        reason, message = _WORDS.get(self.code, ("Unknown", "an error on the server"))
        return ApiError(self.code, reason, message, wait=1 if self.code in (429, 503) else 0)


class Faults:
    """Planned by a test; each is used up by the calls that it hits."""

    def __init__(self, cut: Callable[[], None], drop_watches: Callable[[], None]) -> None:
        self.down = False
        self.hits = 0
        """Calls that a fault has hit, and connections that found the API down."""
        self._lock = threading.Lock()
        self._planned: list[Fault] = []
        self._cut = cut
        self._drop_watches = drop_watches

    def refuse(self, code: int, *, times: int = 1, verb: str = "", resource: str = "") -> None:
        """The next calls are answered with this status (409, 410, 429, 500, 503, ...)."""
        self._plan(Fault("refuse", times, verb, resource, code=code))

    def delay(self, seconds: float, *, times: int = 1, verb: str = "", resource: str = "") -> None:
        """The answers come late, by our own clock; on a watch every event does."""
        self._plan(Fault("late", times, verb, resource, seconds=seconds))

    def reset(
        self, *, times: int = 1, verb: str = "", resource: str = "", after: bool = False
    ) -> None:
        """The connection is reset instead of an answer; `after`: the call was carried out."""
        self._plan(Fault("reset after" if after else "reset", times, verb, resource))

    def stall_watch(self, *, times: int = 1, resource: str = "") -> None:
        """The next watches open and then never say anything."""
        self._plan(Fault("stall", times, "watch", resource))

    def expire_watch(self, *, times: int = 1, resource: str = "") -> None:
        """The next watches open and then send one ERROR event: 410 Gone."""
        self._plan(Fault("gone", times, "watch", resource))

    def repeat_events(self, *, times: int = 1, resource: str = "") -> None:
        """The next watches send each event twice, as one that is opened anew at an old version."""
        self._plan(Fault("repeat", times, "watch", resource))

    def drop_watches(self) -> None:
        """End all open watches, as a restarting API server does."""
        self._drop_watches()

    @contextmanager
    def api_down(self) -> Iterator[None]:
        """While this lasts every connection is reset, the open ones at once."""
        self.down = True
        self._cut()
        try:
            yield
        finally:
            self.down = False

    def clear(self) -> None:
        with self._lock:
            self._planned.clear()

    def take(self, wish: Wish) -> Fault | None:
        """The fault that hits this call, used up by it."""
        with self._lock:
            for fault in self._planned:
                if fault.fits(wish):
                    self.hits += 1
                    fault.times -= 1
                    if fault.times <= 0:
                        self._planned.remove(fault)
                    return fault
        return None

    def turned_away(self) -> None:
        with self._lock:
            self.hits += 1

    def _plan(self, fault: Fault) -> None:
        with self._lock:
            self._planned.append(fault)


def gone() -> ApiError:
    return errors.expired("too old resource version: 1 (2)")
