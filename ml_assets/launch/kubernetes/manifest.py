"""The manifest of an attempt: an Indexed Job and, for several pods, a headless Service.

Pure functions of the order and the settings. The same order gives the same manifest, so a second
launcher finds the existing Job.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ml_assets.errors import SettingsError
from ml_assets.launch.kubernetes.names import (
    ASKED_LABEL,
    ATTEMPT_LABEL,
    QUEUE_LABEL,
    REQUEST_ANNOTATION,
    SESSION_LABEL,
    asked_label,
    job_name,
    labels,
    pod_host,
    slug_of,
)
from ml_assets.settings import Cluster
from ml_assets.settings.cluster import Taint, bytes_of
from ml_assets.spec.cluster import ClusterSpec, Toleration
from ml_assets.spec.memory_estimate import notice_seconds
from ml_assets.spec.training import TrainingSpec
from ml_assets.spec.training_program import World
from ml_assets.spec.training_program.exit_codes import VERDICTS
from ml_assets.spec.training_program.pod import SAVE_SECONDS, UPLOAD_SECONDS
from ml_assets.spec.training_program.start import variables

Manifest = dict[str, Any]

CONTAINER = "training"
USER = 10001
"""User, group and owner of the volumes; the training image has no other."""
PORT = 29500
"""The port of the first pod, where the nodes find each other."""
SCRATCH = "/scratch"
SHARED_MEMORY = "/dev/shm"
TTL_SECONDS = 24 * 3600
"""A Job that ended with nobody to clear it away stays as long, for people who look after it."""
HAND_OVER_SECONDS = UPLOAD_SECONDS + 5
"""After the program; longer than the pod itself takes for it."""
HOST_LABEL = "kubernetes.io/hostname"
"""The label of a node: its name, which the kubelet sets."""
QUEUE_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
SESSION_ANNOTATION = "ml-assets.io/session"

_COMPUTES = {"train", "measure"}
_USUAL_MB_PER_SECOND = 100.0
_USUAL_STATE_BYTES = 10**9
_MOST_SAVE_SECONDS = 3600
_STAYS = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""No node is emptied to save its price while all others would wait for it."""


@dataclass(frozen=True)
class JobOrder:
    """One attempt to be run on a cluster."""

    pipeline: str
    session: str
    attempt: int
    verb: str
    world: World
    """As many pods as it has nodes; after a shrink fewer than ``cluster`` asks for."""
    cluster: ClusterSpec
    spot: bool
    """On machines that may be taken away."""
    request: str
    """``s3://``: where the pods find what they are asked."""
    grace_seconds: int
    """From the notice to the end of the program: see ``save_seconds``."""
    mark: str = ""
    """The mark of an ephemeral store: see ``names.slug_of``."""
    avoid: tuple[str, ...] = ()
    """Nodes that failed an attempt before."""
    asked: str = ""
    """See ``SessionWork.asked``."""

    @property
    def name(self) -> str:
        """The name of the Job and of the Service."""
        return job_name(self.session, self.attempt, self.mark)

    @property
    def gpus_per_pod(self) -> int:
        """One to a process; what neither trains nor measures computes on the CPU."""
        return min(self.cluster.gpus_per_node, self.world.procs) if self.verb in _COMPUTES else 0


def runs_on_spot(verb: str, cluster: ClusterSpec) -> bool:
    """Return whether ``training.spot`` holds for what a verb runs.

    What does not train is short and stays on the ordinary nodes, unless the training's queue, which
    knows spot nodes only, has to admit it.
    """
    return verb in _COMPUTES or cluster.queue is not None


def save_seconds(training: TrainingSpec | None, state_bytes: int | None = None) -> int:
    """Return how long a program has to save after a notice: ``2 * write + 15`` seconds
    (``spec.memory_estimate``).

    Args:
        training: None: a score or a sanity check, which has nothing to save.
        state_bytes: of a checkpoint; None: not known, taken for 1 GB.

    Returns:
        Seconds from 20 to 3600. Without ``spot`` the store is taken to write 100 MB a second.
    """
    if training is None:
        return SAVE_SECONDS
    rate = training.spot.write_mb_per_second if training.spot else _USUAL_MB_PER_SECOND
    needed = notice_seconds(_USUAL_STATE_BYTES if state_bytes is None else state_bytes, rate)
    return math.ceil(min(max(needed, SAVE_SECONDS), _MOST_SAVE_SECONDS))


def job_manifest(order: JobOrder, settings: Cluster) -> Manifest:
    """The Indexed Job of an attempt: ``batch/v1``, whole or not at all.

    Raises:
        SettingsError: it is for spot machines, and nothing says which those are.
    """
    if order.spot and not settings.spot_selector and order.cluster.queue is None:
        raise SettingsError(
            f"{order.pipeline}: training.spot asks for machines that may be taken away, and"
            " ML_ASSETS_SPOT_SELECTOR does not say which nodes those are. Set it to their label,"
            " such as cloud.google.com/gke-spot=true, name a queue that knows them"
            " (cluster.queue), or remove training.spot."
        )
    nodes = order.world.nodes
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": order.name,
            "namespace": settings.namespace,
            "labels": {
                **_labels(order, settings),
                **({ASKED_LABEL: asked_label(order.asked)} if order.asked else {}),
                **_queue_labels(order.cluster),
            },
            "annotations": _annotations(order),
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",  # never two live pods of one index
            "podFailurePolicy": _failure_policy(),
            "activeDeadlineSeconds": math.ceil(order.cluster.deadline_hours * 3600),
            "ttlSecondsAfterFinished": TTL_SECONDS,
            # Kueue releases it when all its pods fit; without Kueue it must not begin
            "suspend": order.cluster.queue is not None,
            "template": {
                "metadata": {
                    "labels": _labels(order, settings),
                    "annotations": {**_annotations(order), **_STAYS},
                },
                "spec": _pod_spec(order, settings),
            },
        },
    }


def service_manifest(order: JobOrder, settings: Cluster, owner_uid: str | None = None) -> Manifest:
    """The headless Service through which the pods of an attempt find each other by name.

    Args:
        owner_uid: of the Job, with which it goes; None: as it looks before there is one.
    """
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": order.name,
        "uid": owner_uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": order.name,
            "namespace": settings.namespace,
            "labels": _labels(order, settings),
            "annotations": _annotations(order),
            **({} if owner_uid is None else {"ownerReferences": [owner]}),
        },
        "spec": {
            "clusterIP": "None",
            # torchrun meets before any pod is ready: its name has to resolve from the start
            "publishNotReadyAddresses": True,
            "selector": _of_attempt(order),
            "ports": [{"name": "rendezvous", "port": PORT, "protocol": "TCP"}],
        },
    }


def manifests(order: JobOrder, settings: Cluster) -> list[Manifest]:
    """All that an attempt is on the cluster; a Service only where pods have to find each other."""
    job = job_manifest(order, settings)
    return [service_manifest(order, settings), job] if order.world.nodes > 1 else [job]


def _failure_policy() -> Manifest:
    """What ends the whole Job at the first pod, and is named in its condition ``FailureTarget``.

    FailJob also for a pod that was taken away: the Job controller would put one pod in its place
    after a back-off (10 s and more) and leave the others to die on time-outs of a round that cannot
    be joined, 66 to 168 seconds in all. The launcher makes a new Job at once, from the checkpoint.
    """
    verdicts = {"containerName": CONTAINER, "operator": "In", "values": sorted(VERDICTS)}
    return {
        "rules": [
            {"action": "FailJob", "onExitCodes": verdicts},
            {
                "action": "FailJob",
                "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
            },
        ]
    }


def _labels(order: JobOrder, settings: Cluster) -> dict[str, str]:
    bought = "spot" if order.spot else settings.bought
    return labels(order.pipeline, order.session, order.attempt, order.verb, bought, order.mark)


def _of_attempt(order: JobOrder) -> dict[str, str]:
    """Selects its pods and no others."""
    return {SESSION_LABEL: slug_of(order.session, order.mark), ATTEMPT_LABEL: str(order.attempt)}


def _annotations(order: JobOrder) -> dict[str, str]:
    return {SESSION_ANNOTATION: order.session, REQUEST_ANNOTATION: order.request}


def _queue_labels(cluster: ClusterSpec) -> dict[str, str]:
    named = {QUEUE_LABEL: cluster.queue, QUEUE_PRIORITY_LABEL: cluster.queue_priority}
    return {label: value for label, value in named.items() if value is not None}


def _pod_spec(order: JobOrder, settings: Cluster) -> Manifest:
    cluster = order.cluster
    spot = dict(settings.spot_selector) if order.spot else {}
    taints = settings.spot_taints if order.spot else ()
    tolerations = [*map(_toleration, cluster.tolerations), *map(_toleration, taints)]
    pull = [{"name": settings.pull_secret}] if settings.pull_secret else []
    optional: Manifest = {
        "subdomain": order.name if order.world.nodes > 1 else None,
        "nodeSelector": {**cluster.node_selector, **spot},
        "affinity": _elsewhere(order.avoid),
        "tolerations": tolerations,
        "priorityClassName": cluster.priority_class,
        "topologySpreadConstraints": _spread(order),
        "imagePullSecrets": pull,
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": order.grace_seconds + HAND_OVER_SECONDS,
        "automountServiceAccountToken": False,  # the program never speaks to the cluster
        "enableServiceLinks": False,  # else every Service of the namespace is in the environment
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **{name: value for name, value in optional.items() if value},
        "containers": [_container(order, settings)],
        "volumes": [
            {"name": "scratch", "emptyDir": {"sizeLimit": cluster.scratch}},
            {
                "name": "shared-memory",
                "emptyDir": {"medium": "Memory", "sizeLimit": cluster.shared_memory},
            },
        ],
    }


def _container(order: JobOrder, settings: Cluster) -> Manifest:
    return {
        "name": CONTAINER,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",  # by digest: what is there is what is meant
        "command": ["python", "-m", "ml_assets.training.staging"],
        "args": _arguments(order),
        "env": [{"name": name, "value": value} for name, value in _variables(order, settings)],
        "envFrom": [{"secretRef": {"name": settings.secret}}],
        "resources": _resources(order),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        # a program that dies before it can reach the store still says why
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "scratch", "mountPath": SCRATCH},
            {"name": "shared-memory", "mountPath": SHARED_MEMORY},
        ],
    }


def _arguments(order: JobOrder) -> list[str]:
    """The arguments of ``ml_assets.training.staging``; Kubernetes puts the pod's own index in."""
    arguments = ["--request", order.request, "--scratch", SCRATCH]
    arguments += ["--grace", str(order.grace_seconds)]
    if cache := order.cluster.data_cache:
        arguments += ["--data-cache", str(bytes_of(cache))]
    if order.world.nodes == 1:
        return arguments
    own = f"{order.name}-$(JOB_COMPLETION_INDEX).{order.name}"
    first = f"{pod_host(order.name, 0)}:{PORT}"
    return [*arguments, "--rendezvous", first, "--address", own]


def _variables(order: JobOrder, settings: Cluster) -> list[tuple[str, str]]:
    """What the program needs besides the Secret's keys, and no secret."""
    store = {
        "AWS_ENDPOINT_URL": settings.s3_endpoint,
        "AWS_REGION": settings.s3_region,
        "AWS_DEFAULT_REGION": settings.s3_region,  # the one that boto3 reads
    }
    given = {
        **variables(order.world.threads),
        # the root file system is read-only, and the user has no home
        "HOME": SCRATCH,
        "TMPDIR": f"{SCRATCH}/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        **{name: value for name, value in store.items() if value is not None},
    }
    return sorted(given.items())


def _resources(order: JobOrder) -> Mapping[str, Mapping[str, str]]:
    """Requests are limits, so that nothing is taken back; all but the cores.

    A limit of cores stops a process for the rest of each 100 ms in which it had its share, and with
    it every process of the collective; a request alone is a share, and never a stop.
    """
    cluster = order.cluster
    held = {"memory": cluster.memory, "ephemeral-storage": cluster.scratch}
    if order.gpus_per_pod:
        held[cluster.gpu_resource] = str(order.gpus_per_pod)
    return {"requests": {"cpu": cluster.cpu, **held}, "limits": held}


def _toleration(of: Toleration | Taint) -> Manifest:
    value = {"operator": "Exists"}
    if of.value is not None:
        value = {"operator": "Equal", "value": of.value}
    effect = {} if of.effect is None else {"effect": of.effect}
    return {"key": of.key, **value, **effect}


def _elsewhere(avoid: Sequence[str]) -> Manifest:
    """A rule, no wish: a node with a broken GPU has the most room, and the image already."""
    if not avoid:
        return {}
    others = {"key": HOST_LABEL, "operator": "NotIn", "values": sorted(avoid)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [others]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _spread(order: JobOrder) -> list[Manifest]:
    """A wish: a training that could run is not kept back because one zone is full."""
    if order.cluster.spread_over is None or order.world.nodes == 1:
        return []
    return [
        {
            "maxSkew": 1,
            "topologyKey": order.cluster.spread_over,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": _of_attempt(order)},
        }
    ]
