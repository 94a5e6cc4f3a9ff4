"""Which resources the server serves."""

from dataclasses import dataclass

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Resource:
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    graceful: bool = False
    """Deleted only once the kubelet says that nothing runs any more."""
    categories: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


_RBAC = ("rbac.authorization.k8s.io", "v1")
_KUEUE = ("kueue.x-k8s.io", "v1beta1")

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, ("ns",), ("status",))
PODS = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    short=("po",),
    subresources=("log", "status", "eviction"),
    graceful=True,
    categories=("all",),
)
SERVICES = Resource("", "v1", "services", "Service", short=("svc",), categories=("all",))
EVENTS = Resource("", "v1", "events", "Event", short=("ev",))
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", short=("cm",))
QUOTAS = Resource(
    "", "v1", "resourcequotas", "ResourceQuota", short=("quota",), subresources=("status",)
)
NODES = Resource("", "v1", "nodes", "Node", False, ("no",), ("status",))
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", short=("sa",))
JOBS = Resource("batch", "v1", "jobs", "Job", subresources=("status",), categories=("all",))
LOCAL_QUEUES = Resource(*_KUEUE, "localqueues", "LocalQueue", short=("queue", "queues", "lq"))
WORKLOADS = Resource(*_KUEUE, "workloads", "Workload", short=("wl",), subresources=("status",))
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, ("pc",)
)
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    False,
    verbs=("create",),
)

RESOURCES = (
    NAMESPACES,
    PODS,
    SERVICES,
    EVENTS,
    SECRETS,
    CONFIG_MAPS,
    QUOTAS,
    NODES,
    SERVICE_ACCOUNTS,
    JOBS,
    LOCAL_QUEUES,
    WORKLOADS,
    ACCESS_REVIEWS,
    # Kept and served; on a real cluster, too, nothing happens to them by themselves.
    PRIORITY_CLASSES,
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short=("netpol",)),
    Resource(*_RBAC, "roles", "Role"),
    Resource(*_RBAC, "rolebindings", "RoleBinding"),
)


def find(group: str, version: str, plural: str) -> Resource | None:
    for resource in RESOURCES:
        if (resource.group, resource.version, resource.plural) == (group, version, plural):
            return resource
    return None


def of_kind(api_version: str, kind: str) -> Resource | None:
    for resource in RESOURCES:
        if (resource.api_version, resource.kind) == (api_version, kind):
            return resource
    return None
