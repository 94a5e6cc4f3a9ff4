"""A watch: the events of one list from a version on, until its time is over."""

import json
import random
from collections.abc import Iterator

from ml_assets_tests.servers.kubernetes import selectors, tables
from ml_assets_tests.servers.kubernetes.errors import ApiError, Json
from ml_assets_tests.servers.kubernetes.requests import Request
from ml_assets_tests.servers.kubernetes.store import Change, Store

_BOOKMARK_EVERY = 60.0
_HEARTBEAT = 1.0
"""Our own seconds after which a silent watch looks whether its client is still there."""


class Watch:
    """Iterate: bytes to send; an empty piece says only that the watch is still open."""

    def __init__(self, store: Store, request: Request) -> None:
        self._store = store
        self._request = request
        query = request.query
        self._labels = selectors.labels_of(query.get("labelSelector", ""))
        self._fields = selectors.fields_of(query.get("fieldSelector", ""), request.resource.plural)
        if request.name:
            self._fields.append(("metadata.name", "in", (request.name,)))
        self._bookmarks = request.flag("allowWatchBookmarks")
        self._seconds = request.number("timeoutSeconds") or random.uniform(1800, 3600)
        self._since = request.number("resourceVersion")
        self._generation = store.generation

    def __iter__(self) -> Iterator[bytes]:
        clock = self._store.clock
        end = clock.seconds() + self._seconds
        bookmark = clock.seconds() + _BOOKMARK_EVERY
        if not self._since:
            found, version = self._now()
            for obj in found:
                yield self._line("ADDED", obj)
        else:
            version = self._since
        while not self._is_over(end):
            try:
                changes = self._wait(version, min(end, bookmark))
            except ApiError as error:
                yield _line("ERROR", error.status)
                return
            for change in changes:
                version = change.version
                if event := self._event(change):
                    yield event
            if self._bookmarks and clock.seconds() >= bookmark:
                bookmark = clock.seconds() + _BOOKMARK_EVERY
                yield self._bookmark(version)
            yield b""
        if self._bookmarks and not self._is_cut():
            yield self._bookmark(version)

    def _is_cut(self) -> bool:
        return self._store.closed or self._generation != self._store.generation

    def _is_over(self, end: float) -> bool:
        return self._is_cut() or self._store.clock.seconds() >= end

    def _now(self) -> tuple[list[Json], int]:
        with self._store.lock:
            found = self._store.all(self._request.resource, self._request.namespace)
            return [obj for obj in found if self._chosen(obj)], self._store.version

    def _wait(self, version: int, until: float) -> list[Change]:
        with self._store.changed:
            changes = self._store.since(self._request.resource, version)
            if not changes and not self._is_cut():
                clock = self._store.clock
                left = clock.real(until - clock.seconds())
                self._store.changed.wait(min(_HEARTBEAT, max(0.001, left)))
                changes = self._store.since(self._request.resource, version)
        return changes

    def _chosen(self, obj: Json) -> bool:
        namespace = self._request.namespace
        return (
            (not namespace or obj["metadata"].get("namespace") == namespace)
            and selectors.matches(obj["metadata"].get("labels"), self._labels)
            and selectors.fields_match(obj, self._fields)
        )

    def _event(self, change: Change) -> bytes | None:
        """What a change is to this watch: an object that no longer fits is DELETED for it."""
        fits = self._chosen(change.obj)
        fitted = change.before is not None and self._chosen(change.before)
        if change.type == "DELETED":
            return self._line("DELETED", change.obj) if fitted else None
        if fits:
            return self._line("MODIFIED" if fitted else "ADDED", change.obj)
        return self._line("DELETED", change.obj) if fitted else None

    def _line(self, kind: str, obj: Json) -> bytes:
        if tables.is_wanted(self._request.accept):
            now = self._store.clock.now()
            obj = tables.table(self._request.resource, [obj], {}, now)
        obj = self._request.resource.as_version(obj, self._request.version)
        return _line(kind, obj)

    def _bookmark(self, version: int) -> bytes:
        resource = self._request.resource
        meta = {"resourceVersion": str(max(version, self._store.compacted))}
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
        return _line("BOOKMARK", obj)


def _line(kind: str, obj: Json) -> bytes:
    return json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode() + b"\n"
