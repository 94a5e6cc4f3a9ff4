"""Why an attempt that ran ended: from what Kubernetes and its pods say to a line of the table.

Pure: it asks nobody.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ml_assets.launch.failure import TABLE, cause_of
from ml_assets.launch.kubernetes.causes import Verdict, of_cause, one_line, signed
from ml_assets.launch.kubernetes.observations import Happening, JobState, PodState
from ml_assets.spec.program.exit_codes import EXIT_BUG, EXIT_NOT_SAVED, EXIT_OUT_OF_MEMORY


@dataclass(frozen=True)
class LastWord:
    """What a pod wrote to the object store before it ended: torchrun exits 1 for everything."""

    index: int
    exit_code: int
    reason: str


@dataclass(frozen=True)
class Scene:
    """All that is known of an attempt that ended.

    Pods in the order in which they were lost, as far as that was seen.
    """

    job: JobState | None
    pods: Sequence[PodState] = ()
    happenings: Sequence[Happening] = ()
    words: Sequence[LastWord] = ()
    said: str = ""
    """Reasons the program gave, and the ends of its logs."""
    spot: bool = False
    """It ran on nodes that may be taken back."""


def verdict(scene: Scene) -> Verdict:
    """What ended an attempt that ran. Every scene has one, also where nobody says anything."""
    found = (rule(scene) for rule in _RULES)
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
_FAILED_WITH = re.compile(r"for pod \S+?/(\S+) failed with exit code (\d+)")
"""In the message of a Job that its pod failure policy failed."""
_START_ERRORS = {"StartError", "ContainerCannotRun"}
_NODE_WORDS = re.compile(r"\bnode\.kubernetes\.io/(?:unreachable|not-ready)\b")


def _deadline(scene: Scene) -> Verdict | None:
    failure = scene.job.failure if scene.job else None
    if failure is None or failure.reason != "DeadlineExceeded":
        return None
    return of_cause("DeadlineExceeded", failure.message)


def _cuda_memory(scene: Scene) -> Verdict | None:
    """The program's own word, or what torch says where nobody caught it."""
    if not _codes(scene).keys() & {EXIT_OUT_OF_MEMORY, EXIT_BUG, 1}:
        return None
    return _by_words(scene, _CUDA_MEMORY, "CudaOutOfMemory")


def _own_word(scene: Scene) -> Verdict | None:
    code = next((code for code in TABLE if code in _OWN & _codes(scene).keys()), None)
    return _of_program(scene, code) if code is not None else None


def _out_of_memory(scene: Scene) -> Verdict | None:
    pod = _first(scene, lambda pod: pod.ended is not None and pod.ended.reason == "OOMKilled")
    return of_cause("OOMKilled", pod.ended.message, pod) if pod and pod.ended else None


def _evicted(scene: Scene) -> Verdict | None:
    """The kubelet says it in the condition first, and then as the pod's own reason."""
    for pod in scene.pods:
        words = pod.message or (pod.disrupted.message if pod.disrupted else "")
        full = _LIMITS.search(words) is not None
        if pod.reason == "Evicted" or (pod.disrupted and (full or _PRESSURE.search(words))):
            return of_cause("ScratchFull" if full else "Evicted", words, pod)
    return None


def _taken(scene: Scene) -> Verdict | None:
    """Who took the pod: the condition says it before the pod's own reason does."""
    for pod in scene.pods:
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
        if cause in {"NodeShutdown", "NodeLost"} and scene.spot and not _NODE_WORDS.search(words):
            cause = "SpotTaken"
        return of_cause(cause, words, pod)
    return None


def _requeued(scene: Scene) -> Verdict | None:
    """Kueue preempts by suspending the Job; the Job controller then deletes its pods."""
    if scene.job is None or not scene.job.suspended:
        return None
    told = next((one.message for one in scene.happenings if one.reason == "Stopped"), "")
    return of_cause("PreemptedByQueue", told, _first(scene, lambda pod: pod.lost))


def _job_deleted(scene: Scene) -> Verdict | None:
    return of_cause("JobDeleted") if scene.job is None or scene.job.deleting else None


def _gpu(scene: Scene) -> Verdict | None:
    found = _by_words(scene, _GPU, "GpuFault")
    return replace(found, avoid=found.node) if found else None


def _pod_deleted(scene: Scene) -> Verdict | None:
    """A plain delete leaves no condition: the first pod lost is one that did not end by itself."""
    first = min(
        (pod for pod in scene.pods if pod.lost),
        key=lambda pod: pod.lost_at.timestamp() if pod.lost_at else float("inf"),
        default=None,
    )
    if first is None or not (first.deleting or first.gone):
        return None
    return of_cause("PodDeleted", pod=first)


def _nccl(scene: Scene) -> Verdict | None:
    found = _by_words(scene, _NCCL, "NcclFault")
    return replace(found, avoid=found.node) if found else None


def _not_run(scene: Scene) -> Verdict | None:
    pod = _first(scene, lambda pod: pod.ended is not None and pod.ended.reason in _START_ERRORS)
    return of_cause("ContainerStart", pod.ended.message, pod) if pod and pod.ended else None


def _by_code(scene: Scene) -> Verdict | None:
    codes = _codes(scene)
    code = next((known for known in TABLE if known in codes), None)
    if code is None:
        return None
    if TABLE[code].then == "interrupted":
        return of_cause("ToldToStop", pod=_pod(scene, codes[code]), code=code)
    return _of_program(scene, code)


def _unexplained(scene: Scene) -> Verdict:
    codes, failure = _codes(scene), scene.job.failure if scene.job else None
    code = next(iter(codes), 0)
    words = f"exit code {code}" if code else (failure.message or failure.reason if failure else "")
    return of_cause("Unexplained", words, _pod(scene, codes.get(code)), code=code)


_RULES: tuple[Callable[[Scene], Verdict | None], ...] = (
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


def _of_program(scene: Scene, code: int) -> Verdict:
    """The program's own end, in the words of its table."""
    index = _codes(scene)[code]
    pod, meaning = _pod(scene, index), TABLE[code]
    said = next((one.reason for one in scene.words if one.exit_code == code), "")
    return Verdict(
        cause=cause_of(code),
        then=meaning.then,
        what=meaning.what,
        words=one_line(said),
        remedy=meaning.remedy,
        code=code,
        pod=pod.name if pod else None,
        node=pod.node if pod else None,
        of_program=True,
    )


def _by_words(scene: Scene, pattern: re.Pattern[str], cause: str) -> Verdict | None:
    """A fault that only the program's words tell; the pod is known where its own last word does."""
    for word in scene.words:
        if pattern.search(word.reason):
            pod = _pod(scene, word.index)
            return of_cause(cause, word.reason, pod, code=word.exit_code)
    line = next((line for line in scene.said.splitlines() if pattern.search(line)), None)
    if line is None:
        return None
    only = scene.pods[0] if len(scene.pods) == 1 else None
    return of_cause(cause, line, only)


def _codes(scene: Scene) -> Mapping[int, int | None]:
    """True exit codes and the index of the pod that had each; the last words first."""
    codes: dict[int, int | None] = {}
    for word in scene.words:
        codes.setdefault(signed(word.exit_code), word.index)
    spoken = {word.index for word in scene.words}
    for pod in scene.pods:
        if pod.ended is not None and pod.index not in spoken:
            codes.setdefault(signed(pod.ended.exit_code), pod.index)
    failure = scene.job.failure if scene.job else None
    told = _FAILED_WITH.search(failure.message) if failure else None
    if told is not None:
        codes.setdefault(signed(int(told[2])), None)
    codes.pop(0, None)
    return codes


def _first(scene: Scene, of: Callable[[PodState], bool]) -> PodState | None:
    return next((pod for pod in scene.pods if of(pod)), None)


def _pod(scene: Scene, index: int | None) -> PodState | None:
    return _first(scene, lambda pod: pod.index == index) if index is not None else None
