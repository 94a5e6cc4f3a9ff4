"""The garbage collector: what an owner's deletion means for what it owned."""

from ml_assets_tests.servers.kubernetes.deletion import FOREGROUND, ORPHAN, delete, drop_finalizer
from ml_assets_tests.servers.kubernetes.errors import ApiError, Json
from ml_assets_tests.servers.kubernetes.loop import Loop
from ml_assets_tests.servers.kubernetes.resources import PODS, Resource
from ml_assets_tests.servers.kubernetes.store import Change, Key, Store, key_of, owners

_POD_GC_SECONDS = 20.0
"""How often Kubernetes collects pods that are deleted and never had a node."""


class GarbageCollector:
    def __init__(self, store: Store, loop: Loop) -> None:
        self._store = store
        self._loop = loop

    def notice(self, change: Change) -> None:
        meta = change.obj["metadata"]
        if change.type != "DELETED" and _is_unbound_and_going(change.resource, change.obj):
            look = ("unbound pod", meta["uid"])
            self._loop.after(_POD_GC_SECONDS, look, lambda: self._fail_unbound(key_of(change.obj)))
        if change.type == "DELETED":
            self._loop.soon(("owner gone", meta["uid"]), lambda: self._owner_gone(meta["uid"]))
            for owner in owners(change.obj):
                self._look_at_owner(owner["uid"])
        elif "deletionTimestamp" in meta:
            if {FOREGROUND, ORPHAN} & set(meta.get("finalizers") or []):
                self._look_at_owner(meta["uid"])
        elif owners(change.obj) and (
            change.before is None or owners(change.before) != owners(change.obj)
        ):
            self._loop.soon(("owned", meta["uid"]), lambda: self._owned(change))

    def _fail_unbound(self, key: Key) -> None:
        """No kubelet ends it: it is marked as failed, so that its Job lets it go."""
        pod = self._store.find(PODS, *key)
        if pod is None or not _is_unbound_and_going(PODS, pod):
            return

        def fail(new: Json) -> None:
            new["status"]["phase"] = "Failed"

        self._store.change(PODS, *key, fail)

    def _look_at_owner(self, uid: str) -> None:
        self._loop.soon(("deleted owner", uid), lambda: self._deleted_owner(uid))

    def _owned(self, change: Change) -> None:
        """Something now names an owner: it goes if none of its owners is there."""
        self._collect(change.resource, key_of(change.obj))

    def _owner_gone(self, uid: str) -> None:
        for resource, obj in self._store.owned_by(uid):
            self._collect(resource, key_of(obj))

    def _collect(self, resource: Resource, key: Key) -> None:
        obj = self._store.find(resource, *key)
        if obj is None or not owners(obj) or "deletionTimestamp" in obj["metadata"]:
            return
        if all(self._store.of_uid(owner["uid"]) is None for owner in owners(obj)):
            self._delete(resource, obj)

    def _deleted_owner(self, uid: str) -> None:
        """An owner that waits, by its finalizer, for its dependents."""
        found = self._store.of_uid(uid)
        if found is None:
            return
        resource, owner = found
        finalizers = set(owner["metadata"].get("finalizers") or [])
        dependents = self._store.owned_by(uid)
        if ORPHAN in finalizers:
            for kind, dependent in dependents:
                self._orphan(kind, dependent, uid)
            drop_finalizer(self._store, resource, key_of(owner), ORPHAN)
        elif FOREGROUND in finalizers:
            blocking = False
            for kind, dependent in dependents:
                blocking = blocking or any(
                    ref["uid"] == uid and ref.get("blockOwnerDeletion") for ref in owners(dependent)
                )
                if "deletionTimestamp" not in dependent["metadata"]:
                    self._delete(kind, dependent)
            if not blocking:
                drop_finalizer(self._store, resource, key_of(owner), FOREGROUND)

    def _orphan(self, resource: Resource, dependent: Json, uid: str) -> None:
        def edit(new: Json) -> None:
            kept = [owner for owner in owners(new) if owner["uid"] != uid]
            if kept:
                new["metadata"]["ownerReferences"] = kept
            else:
                new["metadata"].pop("ownerReferences", None)

        self._store.change(resource, *key_of(dependent), edit)

    def _delete(self, resource: Resource, obj: Json) -> None:
        options = {
            "propagationPolicy": "Background",
            "preconditions": {"uid": obj["metadata"]["uid"]},
        }
        try:
            delete(self._store, resource, key_of(obj), options)
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def _is_unbound_and_going(resource: Resource, obj: Json) -> bool:
    if resource is not PODS or "deletionTimestamp" not in obj["metadata"]:
        return False
    return not obj["spec"].get("nodeName") and obj["status"].get("phase") == "Pending"
