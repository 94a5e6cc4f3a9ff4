"""Finds why an attempt on a cluster ended: from what Kubernetes and its pods say to a line of the
table.

A pure function.
"""

import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ml_assets.launch.failure import TABLE, Ending, judge, of_program, stalled
from ml_assets.launch.kubernetes.following import Over
from ml_assets.launch.kubernetes.manifest import JobOrder
from ml_assets.launch.kubernetes.observations import JobState, KubernetesEvent, PodState
from ml_assets.launch.kubernetes.pod_failures import of_cause, one_line, signed
from ml_assets.settings import PriceClass
from ml_assets.spec.training_program.events import Event, Failed
from ml_assets.spec.training_program.exit_codes import (
    EXIT_BUG,
    EXIT_DONE,
    EXIT_NOT_SAVED,
    EXIT_OUT_OF_MEMORY,
    EXIT_SUPERSEDED,
    true_code,
)
from ml_assets.spec.training_program.pod import TerminationMessage
from ml_assets.spec.usage import Held


@dataclass(frozen=True)
class PodObservations:
    """All that is known of the pods of an attempt that ended, and of their Job.

    Pods in the order in which they were lost, as far as that was seen; their words by index.
    """

    job: JobState | None
    pods: Sequence[PodState] = ()
    cluster_events: Sequence[KubernetesEvent] = ()
    words: Sequence[TerminationMessage] = ()
    """Termination messages that pods left on the object store: torchrun exits 1 for everything."""
    said: str = ""
    """The ends of the logs of pods that failed and left no termination message."""
    spot: bool = False
    """It ran on nodes that may be taken back."""

    @property
    def code(self) -> int:
        """The true exit code of all its pods, as far as they told it."""
        return true_code(0, [word.code for word in self.words])

    @property
    def log(self) -> str:
        """The ends of its pods' logs."""
        told = [f"--- pod {word.index}: {word.reason}\n{word.log}" for word in self.words]
        return "\n".join([*told, self.said])


def diagnose(seen: PodObservations) -> Ending:
    """Return what ended an attempt that ran; there is one also where nobody says anything."""
    found = (rule(seen) for rule in _RULES)
    return next(one for one in found if one is not None)


# --- the rules, each for some lines of the table --------------------------------------------------

_OWN = {
    code
    for code, meaning in TABLE.items()
    if code > 0 and meaning.then == "stop" and code not in {EXIT_BUG, EXIT_NOT_SAVED}
}
"""Ends that nothing outside explains: the program says what is wrong with what it was given."""
_LIMITS = re.compile(r"exceed(?:s|ed) (?:the (?:total )?limit|its local ephemeral storage limit)")
"""The words of an eviction for the pod's own use, not for the node's need."""
_PRESSURE = re.compile(r"node was low on resource|node had condition: ")
_TAKEN = {
    "PreemptionByScheduler": "Preempted",
    "EvictionByEvictionAPI": "NodeShutdown",
    "DeletionByTaintManager": "NodeLost",
    "DeletionByPodGC": "NodeLost",
    "TerminationByKubelet": "NodeShutdown",
}
"""Reasons of the condition ``DisruptionTarget``."""
_POD_REASONS = {
    "Preempting": "Preempted",  # by the kubelet, for a critical pod
    "Terminated": "NodeShutdown",
    "NodeShutdown": "NodeShutdown",
    "Shutdown": "NodeShutdown",
    "NodeLost": "NodeLost",
    "NodeAffinity": "NodeRefused",
    "UnexpectedAdmissionError": "NodeRefused",
}
_REFUSED = "OutOf"
"""Beginning of a pod's reason: ``OutOfcpu``, ``OutOfnvidia.com/gpu``."""
_CUDA_MEMORY = re.compile(r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError", re.IGNORECASE)
_GPU = re.compile(
    r"\bXid\b|uncorrectable (?:NVLink|ECC) error|GPU has fallen off the bus|GPU is lost"
    r"|CUDA driver initialization failed|no CUDA-capable device is detected|unknown NVML error"
    r"|CUDA-capable device\(s\) is/are busy or unavailable|CUDA error: hardware stack error",
    re.IGNORECASE,
)
_NCCL = re.compile(
    r"nccl(?:SystemError|RemoteError|InternalError|UnhandledCudaError)|NCCL error"
    r"|Watchdog caught collective operation timeout",
    re.IGNORECASE,
)
_ROOTS = {EXIT_BUG, -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGBUS}
"""Ends of a rank that its peers, which end after it, report as a fault of NCCL."""
_FAILED_WITH = re.compile(r"for pod \S+?/(\S+) failed with exit code (\d+)")
"""In the message of a Job that its pod failure policy failed."""
_START_ERRORS = {"StartError", "ContainerCannotRun"}
_NODE_WORDS = re.compile(r"\bnode\.kubernetes\.io/(?:unreachable|not-ready)\b")


def _deadline(seen: PodObservations) -> Ending | None:
    failure = seen.job.failure if seen.job else None
    if failure is None or failure.reason != "DeadlineExceeded":
        return None
    return of_cause("DeadlineExceeded", failure.message)


def _cuda_memory(seen: PodObservations) -> Ending | None:
    """The program's own word, or what torch says where nobody caught it."""
    if not _codes(seen).keys() & {EXIT_OUT_OF_MEMORY, EXIT_BUG, 1}:
        return None
    return _by_words(seen, _CUDA_MEMORY, "CudaOutOfMemory")


def _own_word(seen: PodObservations) -> Ending | None:
    code = next((code for code in TABLE if code in _OWN & _codes(seen).keys()), None)
    return _of_program(seen, code) if code is not None else None


def _out_of_memory(seen: PodObservations) -> Ending | None:
    pod = _first(seen, lambda pod: pod.ended is not None and pod.ended.reason == "OOMKilled")
    return of_cause("OOMKilled", pod.ended.message, pod) if pod and pod.ended else None


def _evicted(seen: PodObservations) -> Ending | None:
    """The kubelet says it in the condition first, and then as the pod's own reason."""
    for pod in seen.pods:
        words = pod.message or (pod.disrupted.message if pod.disrupted else "")
        full = _LIMITS.search(words) is not None
        if pod.reason == "Evicted" or (pod.disrupted and (full or _PRESSURE.search(words))):
            return of_cause("ScratchFull" if full else "Evicted", words, pod)
    return None


def _taken(seen: PodObservations) -> Ending | None:
    """Who took the pod: the condition says it before the pod's own reason does."""
    for pod in seen.pods:
        said = pod.disrupted
        cause = _TAKEN.get(said.reason) if said else None
        cause = cause or _POD_REASONS.get(pod.reason)
        if cause is None and pod.reason.startswith(_REFUSED):
            cause = "NodeRefused"
        if cause is None and said is not None:
            cause = "NodeShutdown"
        if cause is None:
            continue
        words = pod.message or (said.message if said else "")
        if cause in {"NodeShutdown", "NodeLost"} and seen.spot and not _NODE_WORDS.search(words):
            cause = "SpotTaken"
        return of_cause(cause, words, pod)
    return None


def _requeued(seen: PodObservations) -> Ending | None:
    """Kueue preempts by suspending the Job; the Job controller then deletes its pods."""
    if seen.job is None or not seen.job.suspended:
        return None
    told = next((one.message for one in seen.cluster_events if one.reason == "Stopped"), "")
    return of_cause("PreemptedByQueue", told, _first(seen, lambda pod: pod.lost))


def _job_deleted(seen: PodObservations) -> Ending | None:
    return of_cause("JobDeleted") if seen.job is None or seen.job.deleting else None


def _gpu(seen: PodObservations) -> Ending | None:
    found = _by_words(seen, _GPU, "GpuFault")
    return replace(found, avoid=found.node) if found else None


def _pod_deleted(seen: PodObservations) -> Ending | None:
    """A plain delete leaves no condition: the first pod lost is one that did not end by itself."""
    first = min(
        (pod for pod in seen.pods if pod.lost),
        key=lambda pod: pod.lost_at.timestamp() if pod.lost_at else float("inf"),
        default=None,
    )
    if first is None or not (first.deleting or first.gone):
        return None
    return of_cause("PodDeleted", pod=first)


def _nccl(seen: PodObservations) -> Ending | None:
    found = _by_words(seen, _NCCL, "NcclFault")
    if found is None:
        return None
    first = min(seen.words, key=lambda word: word.time, default=None)
    if first and signed(first.code) in _ROOTS and not _NCCL.search(first.reason):
        return _of_program(seen, signed(first.code))
    return replace(found, avoid=found.node)


def _not_run(seen: PodObservations) -> Ending | None:
    pod = _first(seen, lambda pod: pod.ended is not None and pod.ended.reason in _START_ERRORS)
    return of_cause("ContainerStart", pod.ended.message, pod) if pod and pod.ended else None


def _by_code(seen: PodObservations) -> Ending | None:
    codes = _codes(seen)
    code = next((known for known in TABLE if known in codes), None)
    if code is None:
        return None
    if TABLE[code].then == "interrupted":
        return of_cause("ToldToStop", pod=_pod(seen, codes[code]), code=code)
    return _of_program(seen, code)


def _unexplained(seen: PodObservations) -> Ending:
    codes, failure = _codes(seen), seen.job.failure if seen.job else None
    code = next(iter(codes), 0)
    words = f"exit code {code}" if code else (failure.message or failure.reason if failure else "")
    return of_cause("Unexplained", words, _pod(seen, codes.get(code)), code=code)


_RULES: tuple[Callable[[PodObservations], Ending | None], ...] = (
    _deadline,
    _cuda_memory,
    _own_word,
    _out_of_memory,
    _evicted,
    _taken,
    _requeued,
    _job_deleted,
    _gpu,
    _pod_deleted,
    _nccl,
    _not_run,
    _by_code,
    _unexplained,
)


def _of_program(seen: PodObservations, code: int) -> Ending:
    """The program's own end, in the words of its table."""
    pod = _pod(seen, _codes(seen)[code])
    said = next((one.reason for one in seen.words if one.code == code), "")
    ending = of_program(code, TABLE[code], one_line(said))
    return replace(ending, pod=pod.name if pod else None, node=pod.node if pod else None)


def _by_words(seen: PodObservations, pattern: re.Pattern[str], cause: str) -> Ending | None:
    """A fault that only the program's words tell; the pod is known by its message."""
    for word in seen.words:
        if pattern.search(word.reason):
            pod = _pod(seen, word.index)
            return of_cause(cause, word.reason, pod, code=word.code)
    line = next((line for line in seen.said.splitlines() if pattern.search(line)), None)
    if line is None:
        return None
    only = seen.pods[0] if len(seen.pods) == 1 else None
    return of_cause(cause, line, only)


def _codes(seen: PodObservations) -> Mapping[int, int | None]:
    """True exit codes and the index of the pod that had each; the pods' own messages first."""
    codes: dict[int, int | None] = {}
    for word in seen.words:
        codes.setdefault(signed(word.code), word.index)
    spoken = {word.index for word in seen.words}
    for pod in seen.pods:
        if pod.ended is not None and pod.index not in spoken:
            codes.setdefault(signed(pod.ended.exit_code), pod.index)
    failure = seen.job.failure if seen.job else None
    told = _FAILED_WITH.search(failure.message) if failure else None
    if told is not None:
        codes.setdefault(signed(int(told[2])), None)
    codes.pop(0, None)
    return codes


def _first(seen: PodObservations, of: Callable[[PodState], bool]) -> PodState | None:
    return next((pod for pod in seen.pods if of(pod)), None)


def _pod(seen: PodObservations, index: int | None) -> PodState | None:
    return _first(seen, lambda pod: pod.index == index) if index is not None else None


def why(over: Over, seen: PodObservations, events: Sequence[Event]) -> Ending:
    """Return why an attempt ended, if nobody was told to stop it.

    Args:
        events: that it told.
    """
    if over.ending is not None:
        return over.ending
    reasons = [event.reason for event in events if isinstance(event, Failed)]
    return diagnose(replace(seen, said="\n".join([*reasons, seen.log])))


def ending_of(over: Over, seen: PodObservations, events: Sequence[Event], log: Path) -> Ending:
    """Return what ended it, and what follows.

    Args:
        log: of the attempt.
    """
    if over.noticed is not None:
        return stalled(over.noticed)
    if over.told:
        return judge(seen.code or -signal.SIGTERM, events, log, workers=False)
    if over.complete:
        return judge(EXIT_DONE, events, log, workers=False)
    found = why(over, seen, events)
    if found.code == EXIT_SUPERSEDED:  # another launcher went on: follow it
        return replace(found, then="lost", cause="Superseded")
    if found.of_program:
        judged = judge(found.code, events, log, workers=False)
        return replace(judged, pod=found.pod, node=found.node)
    return found


def held_by(
    order: JobOrder, seen: PodObservations, bought: PriceClass, told: Sequence[Event]
) -> Held:
    """The machines of an attempt that is over, since when and until when.

    Args:
        told: events of the attempt.
    """
    now = datetime.now(UTC)
    ended = now if seen.job else _last_sign(seen, told) or now
    scheduled = [pod.scheduled for pod in seen.pods if pod.scheduled is not None]
    asked = seen.job.created if seen.job else None
    created = asked or min(scheduled, default=now)  # a Job that was deleted does not tell
    started = [pod.started for pod in seen.pods if pod.started is not None]
    return Held(
        # a machine that a pod never got was held by nobody; a pod may have been replaced
        nodes=min(len(scheduled), order.world.nodes) or order.world.nodes,
        gpus_per_node=order.gpus_per_pod,
        price_class=bought,
        created=created,
        scheduled=min(scheduled, default=None),
        started=max(started) if len(started) >= order.world.nodes else None,
        ended=max(ended, created),
        staged_bytes=sum(word.staged_bytes for word in seen.words),
    )


def _last_sign(seen: PodObservations, told: Sequence[Event]) -> datetime | None:
    """When an attempt was last heard of: its Job may have been gone for long.

    Warnings do not count: the launcher may have told them later.
    """
    events = [event.time for event in told if event.kind != "warning"]
    lost = [pod.lost_at for pod in seen.pods if pod.lost_at is not None]
    return max([*events, *lost, *(word.time for word in seen.words)], default=None)
