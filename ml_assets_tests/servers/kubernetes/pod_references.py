"""What a pod names that must be there when it is created: account, priority class."""

from ml_assets_tests.servers.kubernetes.errors import Json, forbidden
from ml_assets_tests.servers.kubernetes.resources import PRIORITY_CLASSES, SERVICE_ACCOUNTS
from ml_assets_tests.servers.kubernetes.store import Store

_OF_THE_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def check(store: Store, pod: Json) -> None:
    """403 for an account or a priority class that is not there; sets the pod's priority."""
    meta, spec = pod["metadata"], pod["spec"]
    account = spec["serviceAccountName"]
    if store.find(SERVICE_ACCOUNTS, meta["namespace"], account) is None:
        why = (
            f"error looking up service account {meta['namespace']}/{account}:"
            f' serviceaccount "{account}" not found'
        )
        raise forbidden("", "pods", meta["name"], why)
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    name = spec.get("priorityClassName")
    if name in _OF_THE_SYSTEM:
        spec["priority"] = _OF_THE_SYSTEM[name]
    elif name:
        found = store.find(PRIORITY_CLASSES, "", name)
        if found is None:
            why = f"no PriorityClass with name {name} was found"
            raise forbidden("", "pods", meta["name"], why)
        spec["priority"] = found["value"]
        spec["preemptionPolicy"] = found.get("preemptionPolicy", "PreemptLowerPriority")
