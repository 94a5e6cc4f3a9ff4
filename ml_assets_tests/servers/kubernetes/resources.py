"""Which resources the server serves."""

from dataclasses import dataclass
from typing import Any

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
    also: tuple[str, ...] = ()
    """Other versions under which the same objects are served."""

    @property
    def versions(self) -> tuple[str, ...]:
        return (self.version, *self.also)

    @property
    def is_custom(self) -> bool:
        """Defined by a CustomResourceDefinition, not built in."""
        return self.group == "kueue.x-k8s.io"

    def as_version(self, obj: dict[str, Any], version: str) -> dict[str, Any]:
        """An object, or a list of them, as it is served under another version."""
        if version == self.version or obj.get("apiVersion") != self.api_version:
            return obj
        shown = {**obj, "apiVersion": f"{self.group}/{version}"}
        if "items" in obj:
            shown["items"] = [self.as_version(item, version) for item in obj["items"]]
        return shown

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
LOCAL_QUEUES = Resource(
    *_KUEUE, "localqueues", "LocalQueue", short=("queue", "queues", "lq"), also=("v1beta2",)
)
CLUSTER_QUEUES = Resource(
    *_KUEUE, "clusterqueues", "ClusterQueue", False, ("cq",), also=("v1beta2",)
)
FLAVORS = Resource(
    *_KUEUE, "resourceflavors", "ResourceFlavor", False, ("flavor",), also=("v1beta2",)
)
WORKLOADS = Resource(
    *_KUEUE, "workloads", "Workload", short=("wl",), subresources=("status",), also=("v1beta2",)
)
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
    CLUSTER_QUEUES,
    FLAVORS,
    WORKLOADS,
    ACCESS_REVIEWS,
    PRIORITY_CLASSES,
    # Kept and served; nothing comes of them here.
    Resource("", "v1", "limitranges", "LimitRange", short=("limits",)),
    Resource("", "v1", "podtemplates", "PodTemplate"),
    Resource("apps", "v1", "deployments", "Deployment", short=("deploy",)),
    Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short=("pdb",)),
    Resource(*_KUEUE, "workloadpriorityclasses", "WorkloadPriorityClass", False, also=("v1beta2",)),
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short=("netpol",)),
    Resource(*_RBAC, "roles", "Role"),
    Resource(*_RBAC, "rolebindings", "RoleBinding"),
)


def find(group: str, version: str, plural: str) -> Resource | None:
    for resource in RESOURCES:
        if (resource.group, resource.plural) == (group, plural) and version in resource.versions:
            return resource
    return None


def of_kind(api_version: str, kind: str) -> Resource | None:
    for resource in RESOURCES:
        group, _, version = api_version.rpartition("/")
        if (resource.group, resource.kind) == (group, kind) and version in resource.versions:
            return resource
    return None
