"""Events, as the controllers tell them: the same one again only counts up."""

import uuid

from ml_assets_tests.servers.kubernetes.clock import stamp
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.resources import EVENTS
from ml_assets_tests.servers.kubernetes.store import Store


class EventRecorder:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: dict[tuple[str, str, str], str] = {}

    def normal(self, obj: Json, source: str, reason: str, message: str, field: str = "") -> None:
        self._tell("Normal", obj, source, reason, message, field)

    def warning(self, obj: Json, source: str, reason: str, message: str, field: str = "") -> None:
        self._tell("Warning", obj, source, reason, message, field)

    def _tell(
        self, kind: str, obj: Json, source: str, reason: str, message: str, field: str
    ) -> None:
        meta = obj["metadata"]
        key = (meta["uid"], reason, message)
        now = stamp(self._store.clock.now())
        namespace = meta.get("namespace", "default")

        def again(event: Json) -> None:
            event["count"] += 1
            event["lastTimestamp"] = now

        with self._store.lock:
            known = self._names.get(key)
            if known and self._store.change(EVENTS, namespace, known, again):
                return
            name = f"{meta['name']}.{uuid.uuid4().hex[:16]}"
            self._names[key] = name
            involved = {
                "kind": obj["kind"],
                "namespace": namespace,
                "name": meta["name"],
                "uid": meta["uid"],
                "apiVersion": obj["apiVersion"],
                "resourceVersion": meta["resourceVersion"],
            }
            if field:
                involved["fieldPath"] = field
            event = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": str(uuid.uuid4()),
                    "creationTimestamp": now,
                },
                "involvedObject": involved,
                "reason": reason,
                "message": message,
                "source": {"component": source},
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
                "type": kind,
                "eventTime": None,
                "reportingComponent": source,
                "reportingInstance": "",
            }
            self._store.create(EVENTS, event)
