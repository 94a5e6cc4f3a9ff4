"""Observations of our Jobs and pods in small frozen types of our own, from the cluster's JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ml_assets.launch.kubernetes.names import ATTEMPT_LABEL, REQUEST_ANNOTATION

Json = Mapping[str, Any]
"""An object of the Kubernetes API, decoded."""

_INDEX = "batch.kubernetes.io/job-completion-index"
_JOB = "batch.kubernetes.io/job-name"


@dataclass(frozen=True)
class Condition:
    """A condition that holds (or, for ``PodScheduled``, that does not)."""

    type: str
    reason: str
    message: str
    since: datetime | None


@dataclass(frozen=True)
class JobState:
    """A ``batch/v1`` Job."""

    name: str
    uid: str
    labels: Mapping[str, str]
    request: str
    """Where it finds what it is asked; empty: it does not say."""
    parallelism: int
    suspended: bool
    deleting: bool
    conditions: tuple[Condition, ...]
    """Those that hold."""
    created: datetime | None

    def continues(self, attempt: int) -> bool:
        """Whether it is of a later attempt that goes on, or is complete."""
        later = int(self.labels[ATTEMPT_LABEL]) > attempt
        return later and not self.deleting and self.failure is None

    @property
    def complete(self) -> bool:
        """All its pods succeeded."""
        return self.condition("Complete") is not None

    @property
    def failure(self) -> Condition | None:
        """Return why it failed, as soon as that is known.

        ``FailureTarget`` comes at once; ``Failed`` only when the last pod's grace has passed.
        """
        return self.condition("Failed") or self.condition("FailureTarget")

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type; None: it does not hold."""
        return next((one for one in self.conditions if one.type == kind), None)


@dataclass(frozen=True)
class ContainerWaiting:
    """Says why a container does not run yet: ``ContainerCreating``, ``ImagePullBackOff``, ..."""

    reason: str
    message: str


@dataclass(frozen=True)
class ContainerEnd:
    """Describes how a container ended. ``exit_code`` above 128 is a signal, 128 less."""

    exit_code: int
    reason: str
    message: str
    at: datetime | None


@dataclass(frozen=True)
class PodState:
    """A pod of one of our Jobs."""

    name: str
    uid: str
    job: str
    index: int | None
    """Its completion index: the rank of its node."""
    phase: str
    """``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``."""
    reason: str
    """The reason of the pod itself: ``Evicted``, ``NodeLost``, ``OutOfcpu``, ...; mostly empty."""
    message: str
    node: str | None
    deleting: bool
    """It has its grace to end in."""
    unscheduled: Condition | None
    """Why it has no node yet: the scheduler's words."""
    disrupted: Condition | None
    """``DisruptionTarget``: who took it away."""
    waiting: ContainerWaiting | None
    """The first container that does not run yet."""
    ended: ContainerEnd | None
    """The first container that failed, else the first that ended."""
    scheduled: datetime | None
    started: datetime | None
    """When its first container began to run."""
    image: str = ""
    """The image of its first container, with the digest, as it was resolved; empty: not yet."""
    deleted: datetime | None = None
    """When its deletion was asked for."""
    gone: bool = False
    """It was seen, and is there no more."""

    @property
    def lost(self) -> bool:
        """Return whether the pod ended badly or was taken away: its world cannot go on."""
        if self.phase == "Succeeded":
            return False
        return self.phase == "Failed" or self.gone or self.deleting or self.disrupted is not None

    @property
    def lost_at(self) -> datetime | None:
        """Return when that began, to the second; None: it is not lost, or nobody wrote it down."""
        since = self.disrupted.since if self.disrupted else None
        times = [since, self.deleted, self.ended.at if self.ended else None]
        return min((time for time in times if time is not None), default=None)


@dataclass(frozen=True)
class KubernetesEvent:
    """An event (``v1``) about one of our objects: ``FailedCreate``, ``FailedMount``, ..."""

    reason: str
    message: str
    last: datetime | None


@dataclass(frozen=True)
class QueueWord:
    """Holds what Kueue says of a Job that it has not admitted."""

    message: str
    missing: bool
    """The queue itself is not there."""


@dataclass(frozen=True)
class Observed:
    """Everything of one selector at one moment."""

    jobs: tuple[JobState, ...] = ()
    pods: tuple[PodState, ...] = ()
    """With those that are gone, as they were seen last, while their Job is there."""

    def job(self, name: str) -> JobState | None:
        """The Job of this name; None: there is none (any more)."""
        return next((job for job in self.jobs if job.name == name), None)


def job_state(job: Json) -> JobState:
    """From the API's JSON."""
    meta, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    return JobState(
        name=meta["name"],
        uid=meta.get("uid", ""),
        labels=meta.get("labels") or {},
        request=(meta.get("annotations") or {}).get(REQUEST_ANNOTATION, ""),
        parallelism=spec.get("parallelism", 1),
        suspended=bool(spec.get("suspend")),
        deleting=bool(meta.get("deletionTimestamp")),
        conditions=tuple(_condition(one) for one in _conditions(status) if one["status"] == "True"),
        created=_time(meta.get("creationTimestamp")),
    )


def pod_state(pod: Json) -> PodState:
    """From the API's JSON."""
    meta, status = pod["metadata"], pod.get("status") or {}
    labels = meta.get("labels") or {}
    scheduled = _found(status, "PodScheduled", "True")
    containers = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    return PodState(
        name=meta["name"],
        uid=meta.get("uid", ""),
        job=labels.get(_JOB) or labels.get("job-name", ""),
        index=_index(meta),
        phase=status.get("phase", "Pending"),
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        node=(pod.get("spec") or {}).get("nodeName"),
        deleting=bool(meta.get("deletionTimestamp")),
        unscheduled=_found(status, "PodScheduled", "False"),
        disrupted=_found(status, "DisruptionTarget", "True"),
        waiting=_waiting(containers),
        ended=_ended(containers),
        scheduled=scheduled.since if scheduled else None,
        started=_started(status.get("containerStatuses") or ()),
        image=_image(status.get("containerStatuses") or ()),
        deleted=_deleted(meta),
    )


def kubernetes_event(event: Json) -> KubernetesEvent:
    """From the API's JSON."""
    last = event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp")
    return KubernetesEvent(
        reason=event.get("reason") or "",
        message=event.get("message") or "",
        last=_time(last),
    )


def _found(status: Json, kind: str, value: str) -> Condition | None:
    alike = [one for one in _conditions(status) if (one["type"], one["status"]) == (kind, value)]
    return _condition(alike[0]) if alike else None


def _conditions(status: Json) -> Sequence[Json]:
    return status.get("conditions") or ()


def _condition(one: Json) -> Condition:
    return Condition(
        type=one["type"],
        reason=one.get("reason") or "",
        message=one.get("message") or "",
        since=_time(one.get("lastTransitionTime")),
    )


def _index(meta: Json) -> int | None:
    """Kubernetes writes it as an annotation, and since 1.28 as a label, too."""
    text = (meta.get("annotations") or {}).get(_INDEX) or (meta.get("labels") or {}).get(_INDEX)
    return int(text) if text is not None else None


def _waiting(containers: Sequence[Json]) -> ContainerWaiting | None:
    for one in containers:
        waiting = (one.get("state") or {}).get("waiting")
        if waiting is not None:
            return ContainerWaiting(waiting.get("reason") or "", waiting.get("message") or "")
    return None


def _ended(containers: Sequence[Json]) -> ContainerEnd | None:
    ends = [
        ContainerEnd(
            exit_code=ended.get("exitCode", 0),
            reason=ended.get("reason") or "",
            message=ended.get("message") or "",
            at=_time(ended.get("finishedAt")),
        )
        for one in containers
        if (ended := (one.get("state") or {}).get("terminated")) is not None
    ]
    return next((end for end in ends if end.exit_code), ends[0] if ends else None)


def _started(containers: Sequence[Json]) -> datetime | None:
    states = [one.get("state") or {} for one in containers]
    began = [state.get("running") or state.get("terminated") or {} for state in states]
    times = [time for one in began if (time := _time(one.get("startedAt"))) is not None]
    return min(times, default=None)


def _image(containers: Sequence[Json]) -> str:
    """``imageID``: repository@sha256:..., which older runtimes write behind ``docker-pullable://``."""
    found = next((one.get("imageID") or "" for one in containers), "")
    return found.rpartition("://")[2]


def _deleted(meta: Json) -> datetime | None:
    """Kubernetes writes when the grace ends."""
    ends = _time(meta.get("deletionTimestamp"))
    return ends - timedelta(seconds=meta.get("deletionGracePeriodSeconds") or 0) if ends else None


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
