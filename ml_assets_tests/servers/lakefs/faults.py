"""Faults on demand: the next requests that match are refused, cut, delayed, or answered too late.

A fault ``after`` the effect is the ambiguous one: the server did it, the client cannot know.
"""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ml_assets_tests.servers.lakefs.exchange import Request


@dataclass
class Fault:
    """What happens to the next ``times`` requests that match; without a status the line breaks."""

    method: str = ""
    """Any method where empty."""
    path: str = ""
    """A regular expression, found in the path and query as they came (``%2F`` is not unquoted)."""
    times: int = 1
    """-1: always."""
    status: int = 0
    """Answered instead; 0: the connection is reset."""
    after: bool = False
    """The effect happens first."""
    cut: int | None = None
    """The answer is whole in its headers; the body breaks off after so many bytes."""
    delay: float = 0
    """Seconds to wait before that; with nothing else, the request is served then."""
    then: Callable[[], object] | None = None
    """Called before that: a race on demand; with nothing else, the request is served then."""

    @property
    def only_waits(self) -> bool:
        return bool(self.delay or self.then) and not self.status and self.cut is None

    def matches(self, request: Request) -> bool:
        if self.method and self.method != request.method:
            return False
        return bool(re.search(self.path, request.target))


@dataclass
class Faults:
    """Safe to use from several threads."""

    planned: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and target of all requests so far."""
    hits: int = 0
    """Requests that a fault has hit."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            self.planned.append(fault)
        return fault

    def clear(self) -> None:
        with self._lock:
            self.planned.clear()
            self.requests.clear()

    def strikes(self, request: Request) -> Fault | None:
        """The first planned fault that matches, which is then used up once."""
        with self._lock:
            self.requests.append((request.method, request.target))
            fault = next((each for each in self.planned if each.matches(request)), None)
            if fault is None:
                return None
            self.hits += 1
            fault.times -= fault.times > 0
            if fault.times == 0:
                self.planned.remove(fault)
        if fault.delay:
            time.sleep(fault.delay)
        if fault.then:
            fault.then()
        return None if fault.only_waits else fault

    def count(self, method: str = "", path: str = "") -> int:
        """How many requests so far had this method, and this pattern in their target."""
        with self._lock:
            seen = list(self.requests)
        return sum(
            (not method or method == each) and bool(re.search(path, target))
            for each, target in seen
        )
