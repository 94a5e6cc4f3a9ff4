"""What was asked of the server: each call as RBAC names it."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    verb: str
    """get, list, watch, create, update, patch, delete, deletecollection."""
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user: str
    code: int
    """The HTTP status of the answer; 0 where the connection was cut."""

    @property
    def rule(self) -> tuple[str, str, str]:
        """(API group, resource with its subresource, verb): what a Role must grant."""
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return self.group, what, self.verb


class Calls:
    """All calls in order; iterate, count with `len`, forget with `clear`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = []

    def add(self, call: Call) -> None:
        with self._lock:
            self._calls.append(call)

    def clear(self) -> None:
        with self._lock:
            self._calls.clear()

    def __iter__(self) -> Iterator[Call]:
        with self._lock:
            return iter(list(self._calls))

    def __len__(self) -> int:
        with self._lock:
            return len(self._calls)

    def of(self, verb: str, resource: str) -> list[Call]:
        return [call for call in self if (call.verb, call.resource) == (verb, resource)]

    def rules(self) -> set[tuple[str, str, str]]:
        """What a Role must grant for all these calls: (API group, resource, verb)."""
        return {call.rule for call in self}
