"""Finds why an attempt does not run yet, and when to stop waiting for it."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import takewhile

from ml_assets.errors import counted
from ml_assets.launch.failure import Ending
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.names import QUEUE_LABEL
from ml_assets.launch.kubernetes.observations import (
    JobState,
    KubernetesEvent,
    PodState,
    QueueWord,
)
from ml_assets.launch.kubernetes.pod_failures import of_cause, one_line

# seconds that a cause may last before it ends the attempt. What only a person can mend is told
# quickly; a cause that comes and goes gets the time that it usually takes to go.
PATIENCE: Mapping[str, float] = {
    "ImagePull": 20,  # kubelets pull again after ten seconds: one refusal may be a passing one
    "RegistryAway": 1800,  # kubelets pull again by themselves, every five minutes at last
    "InvalidImageName": 0,
    "ErrImageNeverPull": 0,
    "SignatureValidationFailed": 20,
    "CreateContainerConfigError": 20,
    "ContainerStart": 20,
    "VolumeMount": 300,
    "QuotaTooSmall": 0,
    "PodsForbidden": 20,
    "QueueMissing": 0,
    "NotStarted": 1800,  # a new node, its drivers and ten gigabytes of image
}
_OF_SPEC = {"Unschedulable", "QuotaExceeded"}
"""Waiting for room: how long is worth it the spec says."""
_BETWEEN_QUESTIONS = (1.0, 15.0)
"""Seconds between two looks at the events: at first, and at most. Each is a call to the cluster."""

_PULLS = {"ErrImagePull", "ImagePullBackOff", "ErrRegistryUnavailable", "RegistryUnavailable"}
_BACK_OFF = "Back-off pulling image"
_TOLD = {
    "InvalidImageName",
    "ErrImageNeverPull",
    "SignatureValidationFailed",
    "CreateContainerConfigError",
}
"""Reasons that are causes of the table."""
_STARTS = {"CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"}
_MOUNTS = {"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "FailedMapVolume"}
_PAST_MOUNTS = {"Pulling", "Pulled", "Created", "Started"}
"""Events of a pod whose volumes and network are there."""
_PASSING = re.compile(
    r"failed calling webhook|Internal error occurred|timed? ?out|unable to return a response"
    r"|object has been modified",
    re.IGNORECASE,
)
"""What keeps a pod from being made for a while: the Job controller tries again."""
_QUOTED = re.compile(r'"[^"]*"')
"""The image and addresses, in which any word may stand."""
_BUSY = re.compile(r"toomanyrequests|too many requests|\b429\b", re.IGNORECASE)
"""The registry's rate limit, whatever else it says of who we are: it passes."""
_DENIED = re.compile(
    # the registry has no such image: containerd, CRI-O, Docker
    r"\bnot ?found\b|manifest unknown|name unknown|does not exist|\b404\b"
    # or it is none that this node can run, or not what its digest says
    r"|no match for platform|no image found in (?:image index|manifest list)"
    r"|does not match provided manifest digest|unsupported (?:digest|media ?type|manifest)"
    # we may not read it
    r"|unauthorized|unauthenticated|\bdenied\b|forbidden|authentication required"
    r"|no basic auth credentials|insufficient_scope|invalid username/password"
    # its name is none
    r"|invalid reference|parsing reference|invalid checksum digest"
    # DNS knows no such host (what DNS does not answer may come back), or it is no registry of ours
    r"|no such host|certificate signed by unknown authority|certificate is (?:not )?valid for"
    r"|server gave HTTP response to HTTPS client",
    re.IGNORECASE,
)
"""An answer that asking again does not change: of the registry, or of DNS about its name."""


@dataclass(frozen=True)
class Stuck:
    """Holds what keeps an attempt from running."""

    cause: str
    """A key of ``pod_failures.CAUSES``; ``Queued`` and ``Suspended`` may last for ever."""
    words: str
    pod: PodState | None = None
    room: int | None = None


class StartUp:
    """Looks at an attempt that is coming up, and says when it has waited long enough.

    Args:
        api: asked for events and Kueue's words, now and then; each question is a call.
        room_seconds: how long to wait for room: nodes or quota.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        api: KubernetesApi,
        room_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._room_seconds = room_seconds
        self._clock = clock
        self._ask_at = clock()
        self._between = _BETWEEN_QUESTIONS[0]
        self._cluster_events: Sequence[KubernetesEvent] = ()
        self._queue: QueueWord | None = None
        self._stuck: Stuck | None = None
        self._since = clock()

    def look(self, job: JobState, pods: Sequence[PodState]) -> Stuck | Ending | None:
        """Return what it waits for, or the ending after too long; None: all pods run."""
        if started(job, pods):
            self._stuck = None
            return None
        self._ask(job, pods)
        stuck = stuck_on(job, pods, self._cluster_events, self._queue)
        if self._stuck is None or not _same(self._stuck, stuck):
            self._since = self._clock()
        elif stuck.words.startswith(_BACK_OFF) and ": " not in stuck.words:
            stuck = self._stuck  # before Kubernetes 1.32 it says less than the error before it
        self._stuck = stuck
        patience = self._room_seconds if stuck.cause in _OF_SPEC else PATIENCE.get(stuck.cause)
        if patience is None or self._clock() - self._since < patience:
            return stuck
        return of_cause(stuck.cause, stuck.words, stuck.pod, room=stuck.room)

    def _ask(self, job: JobState, pods: Sequence[PodState]) -> None:
        """Only where the states alone do not tell, and not all the time."""
        if self._clock() < self._ask_at:
            return
        quiet = next((pod for pod in pods if _is_quiet(pod)), None)
        queue = job.labels.get(QUEUE_LABEL)
        if job.suspended and queue is not None:
            self._queue = self._api.queue_word(job, queue)
        elif len(pods) < job.parallelism:
            self._cluster_events = self._api.cluster_events(job.uid)
        elif quiet is not None:
            self._cluster_events = self._api.cluster_events(quiet.uid)
        else:
            return
        self._ask_at = self._clock() + self._between
        self._between = min(self._between * 2, _BETWEEN_QUESTIONS[1])


def started(job: JobState, pods: Sequence[PodState]) -> bool:
    """All its pods run, or did."""
    return len(pods) >= job.parallelism and all(pod.phase != "Pending" for pod in pods)


def stuck_on(
    job: JobState,
    pods: Sequence[PodState],
    cluster_events: Sequence[KubernetesEvent],
    queue: QueueWord | None,
) -> Stuck:
    """Return what keeps an attempt from running, by all that is known."""
    if job.suspended:
        return _suspended(job, queue)
    pending = [pod for pod in pods if pod.phase == "Pending"]
    of_pods = (found for pod in pending if (found := _of_container(pod)) is not None)
    stuck = next(of_pods, None) or _uncreated(job, pods, cluster_events) or _unscheduled(job, pods)
    if stuck is not None:
        return stuck
    quiet = next(iter(pending), None)
    since = takewhile(lambda one: one.reason not in _PAST_MOUNTS, reversed(cluster_events))
    failing = next((one for one in since if one.reason in _MOUNTS), None)
    if failing is not None and quiet is not None:
        return Stuck("VolumeMount", one_line(failing.message), quiet)
    reason = quiet.waiting.reason if quiet and quiet.waiting else ""
    return Stuck(
        "NotStarted", reason or f"{len(pods)} of {counted(job.parallelism, 'pod')} made", quiet
    )


def _suspended(job: JobState, queue: QueueWord | None) -> Stuck:
    name = job.labels.get(QUEUE_LABEL)
    if name is None:
        return Stuck("Suspended", "somebody suspended the Job; nothing runs until that is undone")
    said = f" ({one_line(queue.message)})" if queue and queue.message else ""
    missing = queue is not None and queue.missing
    return Stuck("QueueMissing" if missing else "Queued", f"queue {name}{said}")


def _of_container(pod: PodState) -> Stuck | None:
    waiting = pod.waiting
    if waiting is None:
        return None
    words = one_line(waiting.message)
    if waiting.reason in _TOLD:
        return Stuck(waiting.reason, words, pod)
    if waiting.reason in _PULLS:
        said = _QUOTED.sub("", waiting.message)
        final = _DENIED.search(said) and not _BUSY.search(said)
        return Stuck("ImagePull" if final else "RegistryAway", words, pod)
    return Stuck("ContainerStart", words, pod) if waiting.reason in _STARTS else None


def _uncreated(
    job: JobState, pods: Sequence[PodState], cluster_events: Sequence[KubernetesEvent]
) -> Stuck | None:
    failed = [one for one in cluster_events if one.reason == "FailedCreate"]
    if len(pods) >= job.parallelism or not failed:
        return None
    said = failed[-1].message
    words = one_line(said)
    if "exceeded quota" not in said:
        return Stuck("NotStarted" if _PASSING.search(said) else "PodsForbidden", words)
    small = too_small(said, job.parallelism)
    return Stuck("QuotaTooSmall" if small else "QuotaExceeded", words, room=len(pods))


def _unscheduled(job: JobState, pods: Sequence[PodState]) -> Stuck | None:
    without = [pod for pod in pods if pod.node is None and pod.unscheduled is not None]
    if not without or without[0].unscheduled is None:
        return None
    room = sum(pod.node is not None for pod in pods)
    words = (
        f"{room} of {counted(job.parallelism, 'pod', 'have')} a node;"
        f" {without[0].unscheduled.message}"
    )
    return Stuck("Unschedulable", one_line(words), without[0], room)


def _same(one: Stuck, other: Stuck) -> bool:
    """A pull that goes on failing is one cause, whichever words it uses now."""
    return one.cause == other.cause or {one.cause, other.cause} == {"ImagePull", "RegistryAway"}


def _is_quiet(pod: PodState) -> bool:
    """It has a node, and its container does not say what is wrong."""
    return pod.phase == "Pending" and pod.node is not None and _of_container(pod) is None


_SAID = re.compile(r"exceeded quota: (?P<quota>[^,]+), requested: (?P<said>.+)$", re.DOTALL)
_PARTS = re.compile(r"^(?P<requested>.+?), used: (?P<used>.+?), limited: (?P<limited>.+)$")


def too_small(message: str, pods: int) -> bool:
    """Return whether a quota could never hold so many pods, even if nobody else used any of it.

    Args:
        message: of the ``FailedCreate`` event; one of another form says no.
        pods: how many have to run at a time; the message is about one of them.
    """
    said = _SAID.search(message)
    parts = _PARTS.match(" ".join(said["said"].split())) if said else None
    if parts is None:
        return False
    requested, limited = _amounts(parts["requested"]), _amounts(parts["limited"])
    return any(
        amount * pods > limited[name] for name, amount in requested.items() if name in limited
    )


def _amounts(listed: str) -> dict[str, Decimal]:
    """The amounts of ``pods=1,requests.cpu=2``; what is no quantity is left out."""
    from kubernetes.utils import parse_quantity

    found: dict[str, Decimal] = {}
    for name, _, quantity in (part.partition("=") for part in listed.split(",")):
        with suppress(ValueError):
            found[name.strip()] = parse_quantity(quantity.strip())
    return found
