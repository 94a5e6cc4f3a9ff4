"""Deleting: grace for pods, propagation to dependents, finalizers."""

from datetime import timedelta

from ml_assets_tests.servers.kubernetes import errors
from ml_assets_tests.servers.kubernetes.clock import stamp
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.resources import JOBS, PODS, Resource
from ml_assets_tests.servers.kubernetes.store import Key, Store

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
JOB_TRACKING = "batch.kubernetes.io/job-tracking"
DEFAULT_GRACE = 30

_POLICIES = {"Foreground": FOREGROUND, "Orphan": ORPHAN, "Background": None}


def delete(store: Store, resource: Resource, key: Key, options: Json) -> tuple[Json, bool]:
    """Delete one object by `DeleteOptions`; returns it and whether it is gone already."""
    with store.lock:
        obj = store.get(resource, *key)
        _check_preconditions(resource, obj, options.get("preconditions") or {})
        finalizer = _finalizer(resource, options)
        grace = _grace(resource, obj, options)

        def edit(new: Json) -> None:
            meta = new["metadata"]
            kept = [f for f in meta.get("finalizers") or [] if f not in (FOREGROUND, ORPHAN)]
            wanted = [*kept, finalizer] if finalizer else kept
            if wanted:
                meta["finalizers"] = wanted
            else:
                meta.pop("finalizers", None)
            before = meta.get("deletionGracePeriodSeconds")
            if "deletionTimestamp" not in meta or (before is not None and grace < before):
                meta["deletionTimestamp"] = stamp(store.clock.now() + timedelta(seconds=grace))
                meta["deletionGracePeriodSeconds"] = grace
                meta["generation"] = meta.get("generation", 0) + 1

        deleted = store.change(resource, *key, edit)
        assert deleted is not None
        return deleted, store.find(resource, *key) is None


def drop_finalizer(store: Store, resource: Resource, key: Key, finalizer: str) -> None:
    def edit(new: Json) -> None:
        kept = [f for f in new["metadata"].get("finalizers") or [] if f != finalizer]
        if kept:
            new["metadata"]["finalizers"] = kept
        else:
            new["metadata"].pop("finalizers", None)

    store.change(resource, *key, edit)


def _check_preconditions(resource: Resource, obj: Json, wanted: Json) -> None:
    meta = obj["metadata"]
    for field, said in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(field) and wanted[field] != meta[field]:
            why = (
                f"Precondition failed: {said} in precondition: {wanted[field]},"
                f" {said} in object meta: {meta[field]}"
            )
            raise errors.conflict(resource.group, resource.plural, meta["name"], why)


def _finalizer(resource: Resource, options: Json) -> str | None:
    policy = options.get("propagationPolicy")
    if policy is None and options.get("orphanDependents") is not None:
        policy = "Orphan" if options["orphanDependents"] else "Background"
    if policy is None:  # batch/v1 kept the default of its first days: the pods stay
        return ORPHAN if resource is JOBS else None
    if policy not in _POLICIES:
        cause = (
            "FieldValueNotSupported",
            "propagationPolicy",
            f'Unsupported value: "{policy}": supported values: "Background", "Foreground",'
            ' "Orphan"',
        )
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [cause])
    return _POLICIES[policy]


def _grace(resource: Resource, obj: Json, options: Json) -> int:
    if resource is not PODS:
        return 0
    finished = obj.get("status", {}).get("phase") in ("Succeeded", "Failed")
    if finished or not obj["spec"].get("nodeName"):
        return 0
    asked = options.get("gracePeriodSeconds")
    default = obj["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE)
    return max(0, int(default if asked is None else asked))
