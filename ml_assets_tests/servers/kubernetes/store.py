"""All objects, their one counter of versions, and the history that watches read.

What is read is shared: never change it. Changes go through `create`, `replace` and `change`.
"""

import bisect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ml_assets_tests.servers.kubernetes import errors
from ml_assets_tests.servers.kubernetes.clock import Clock
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.resources import Resource

Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-wide object is empty."""

_KEPT = 20_000


@dataclass(frozen=True)
class Change:
    version: int
    type: str
    """ADDED, MODIFIED or DELETED."""
    resource: Resource
    obj: Json
    before: Json | None


def clone(value: Any) -> Any:
    """A deep copy of JSON."""
    if isinstance(value, dict):
        return {key: clone(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [clone(inner) for inner in value]
    return value


def key_of(obj: Json) -> Key:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


class Store:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.closed = False
        self.generation = 0
        """A watch that was opened under an older one ends."""
        self.version = 1000
        self.compacted = 0
        """Watches and pages from before this version are 410 Gone."""
        self._objects: dict[Resource, dict[Key, Json]] = {}
        self._history: dict[Resource, list[Change]] = {}
        self._listeners: list[Callable[[Change], None]] = []

    # --- reading ----------------------------------------------------------------------------------

    def find(self, resource: Resource, namespace: str, name: str) -> Json | None:
        with self.lock:
            return self._objects.get(resource, {}).get((namespace, name))

    def get(self, resource: Resource, namespace: str, name: str) -> Json:
        found = self.find(resource, namespace, name)
        if found is None:
            raise errors.not_found(resource.group, resource.plural, name)
        return found

    def all(self, resource: Resource, namespace: str = "") -> list[Json]:
        """All of a namespace (empty: of all), sorted by key as a real server sorts them."""
        with self.lock:
            objects = self._objects.get(resource, {})
            return [objects[k] for k in sorted(objects) if not namespace or k[0] == namespace]

    def all_at(self, resource: Resource, namespace: str, version: int) -> list[Json]:
        """The list as it was at a version, read back from the history."""
        with self.lock:
            objects = dict(self._objects.get(resource, {}))
            for change in reversed(self.since(resource, version)):
                if change.before is None:
                    objects.pop(key_of(change.obj), None)
                else:
                    objects[key_of(change.obj)] = change.before
            return [objects[k] for k in sorted(objects) if not namespace or k[0] == namespace]

    def since(self, resource: Resource, version: int) -> list[Change]:
        """The changes after a version; 410 where the history does not reach so far back."""
        with self.lock:
            if version < self.compacted:
                raise errors.expired(f"too old resource version: {version} ({self.compacted})")
            history = self._history.get(resource, [])
            return history[bisect.bisect_right(history, version, key=lambda c: c.version) :]

    def of_uid(self, uid: str) -> tuple[Resource, Json] | None:
        with self.lock:
            for resource, objects in self._objects.items():
                for obj in objects.values():
                    if obj["metadata"]["uid"] == uid:
                        return resource, obj
        return None

    def owned_by(self, uid: str) -> list[tuple[Resource, Json]]:
        with self.lock:
            return [
                (resource, obj)
                for resource, objects in self._objects.items()
                for obj in objects.values()
                if any(owner["uid"] == uid for owner in owners(obj))
            ]

    # --- changing ---------------------------------------------------------------------------------

    def create(self, resource: Resource, obj: Json) -> Json:
        """Keep a new object, which becomes the store's."""
        with self.lock:
            meta = obj["metadata"]
            if key_of(obj) in self._objects.get(resource, {}):
                raise errors.already_exists(resource.group, resource.plural, meta["name"])
            return self._keep(resource, obj, None)

    def replace(self, resource: Resource, obj: Json) -> Json:
        """Keep `obj` in the place of what has its name; 409 where its version is not the last."""
        with self.lock:
            meta = obj["metadata"]
            old = self.get(resource, *key_of(obj))
            wanted = meta.get("resourceVersion")
            if wanted and wanted != old["metadata"]["resourceVersion"]:
                raise errors.conflict(resource.group, resource.plural, meta["name"])
            meta["resourceVersion"] = old["metadata"]["resourceVersion"]
            if obj == old:
                return old
            if obj.get("spec") != old.get("spec") and "generation" in meta:
                meta["generation"] = old["metadata"].get("generation", 0) + 1
            return self._keep(resource, obj, old)

    def change(
        self, resource: Resource, namespace: str, name: str, edit: Callable[[Json], None]
    ) -> Json | None:
        """Edit a copy of the last version and keep it; None where there is no such object."""
        with self.lock:
            old = self.find(resource, namespace, name)
            if old is None:
                return None
            new = clone(old)
            edit(new)
            return self.replace(resource, new)

    def remove(self, resource: Resource, key: Key) -> Json | None:
        """Take an object out, whatever its finalizers say."""
        with self.lock:
            old = self._objects.get(resource, {}).pop(key, None)
            if old is not None:
                last = {**old, "metadata": {**old["metadata"]}}
                self._note("DELETED", resource, last, old)
            return old

    def _keep(self, resource: Resource, obj: Json, old: Json | None) -> Json:
        if old is not None and _may_go(resource, obj):
            self._objects[resource][key_of(obj)] = obj
            self.remove(resource, key_of(obj))
            return obj
        self._objects.setdefault(resource, {})[key_of(obj)] = obj
        self._note("ADDED" if old is None else "MODIFIED", resource, obj, old)
        return obj

    def _note(self, kind: str, resource: Resource, obj: Json, before: Json | None) -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        change = Change(self.version, kind, resource, obj, before)
        history = self._history.setdefault(resource, [])
        history.append(change)
        if len(history) > _KEPT:
            self.compacted = max(self.compacted, history[_KEPT // 2].version)
            del history[: _KEPT // 2 + 1]
        for listener in self._listeners:
            listener(change)
        self.changed.notify_all()

    # --- watching ---------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[Change], None]) -> None:
        """`listener` is called with each change, under the lock: it must only take a note."""
        self._listeners.append(listener)

    def compact(self) -> None:
        """Forget the history: whoever watches or pages from an older version is told 410."""
        with self.lock:
            self.compacted = self.version
            for history in self._history.values():
                history.clear()
            self.changed.notify_all()

    def end_watches(self) -> None:
        with self.lock:
            self.generation += 1
            self.changed.notify_all()

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.changed.notify_all()


def owners(obj: Json) -> list[Json]:
    return obj["metadata"].get("ownerReferences") or []


def controller_of(obj: Json) -> str | None:
    """The uid of the owner that controls this object."""
    return next((owner["uid"] for owner in owners(obj) if owner.get("controller")), None)


def _may_go(resource: Resource, obj: Json) -> bool:
    """Whether nothing holds a deleted object any more: no finalizer, no running container."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers"):
        return False
    return not resource.graceful or meta.get("deletionGracePeriodSeconds") == 0
