"""The table of what can happen to a Job on the cluster, and the ending of each line.

The words are Kubernetes's own where it has some. The program's own exit codes are in
``launch.failure.TABLE``.
"""

from ml_assets.launch.failure import TABLE, Ending, Meaning
from ml_assets.launch.kubernetes.observations import PodState
from ml_assets.spec.training_program.exit_codes import EXIT_OUT_OF_MEMORY

# What ends an attempt that ran, in the order in which it is looked for (who took a pod away counts
# before what the others made of its loss); then what keeps one from running. docs/cluster.md shows
# it; a test holds the two together.
CAUSES: dict[str, Meaning] = {
    "DeadlineExceeded": Meaning(
        "it ran longer than cluster.deadline_hours allows",
        "Raise cluster.deadline_hours and run again: it continues from the last whole checkpoint.",
        "stop",
    ),
    "CudaOutOfMemory": Meaning(
        "the memory of a GPU ran out",
        TABLE[EXIT_OUT_OF_MEMORY].remedy,
        "stop",
    ),
    "OOMKilled": Meaning(
        "memory ran out: a container went over its limit, and the kernel killed it",
        "Raise cluster.memory, or lower training.batch_size. Shared memory and scratch files in"
        " memory count, too.",
        "again",
    ),
    "ScratchFull": Meaning(
        "it wrote more than cluster.scratch or cluster.shared_memory allows",
        "Raise the one that is named; a pod holds its data, its checkpoints and its log there.",
        "stop",
    ),
    "Evicted": Meaning(
        "its node ran short of something, and evicted it",
        "Nothing: it continues elsewhere. If it happens again, request what it really uses"
        " (cluster.memory, cluster.scratch).",
        "lost",
    ),
    "Preempted": Meaning(
        "the scheduler gave its place to a pod of higher priority",
        "Nothing: it continues when there is room. A higher cluster.priority_class loses less.",
        "lost",
    ),
    "PreemptedByQueue": Meaning(
        "Kueue took its quota back for another job",
        "Nothing: it continues when it is admitted again. A higher priority, or a queue with a"
        " larger guaranteed quota, loses less.",
        "lost",
    ),
    "SpotTaken": Meaning(
        "its spot node was taken back",
        "Nothing: it continues from the last whole checkpoint. Without training.spot it runs on"
        " nodes that stay.",
        "lost",
    ),
    "NodeShutdown": Meaning(
        "its node was drained or shut down",
        "Nothing: it continues from the last whole checkpoint, where there is room.",
        "lost",
    ),
    "NodeLost": Meaning(
        "its node was lost: it no longer answers, or is gone",
        "Nothing: it continues from the last whole checkpoint, where there is room.",
        "lost",
    ),
    "NodeRefused": Meaning(
        "its node refused it after the scheduler had placed it there",
        "Nothing: it is placed again. If it happens again, look at that node's device plugin.",
        "lost",
    ),
    "JobDeleted": Meaning(
        "somebody deleted its Job",
        "Run again to continue from the last whole checkpoint.",
        "interrupted",
    ),
    "Superseded": Meaning(
        "another command that follows this session deleted its Job and continued",
        "Nothing: this command follows the next attempt, too.",
        "lost",
    ),
    "GpuFault": Meaning(
        "a GPU failed",
        "Nothing: it continues elsewhere. Drain the node that is named, and have its GPU examined"
        " (dmesg shows the Xid).",
        "lost",
    ),
    "PodDeleted": Meaning(
        "somebody deleted one of its pods",
        "Nothing: it continues from the last whole checkpoint.",
        "lost",
    ),
    "NcclFault": Meaning(
        "the GPUs of its nodes lost each other (NCCL)",
        "Nothing: it continues elsewhere. If it happens again, look at the network of those nodes.",
        "lost",
    ),
    "ToldToStop": Meaning(
        "it was told to stop, and the cluster gives no cause: most likely its node shut down",
        "Nothing: it continues from the last whole checkpoint.",
        "lost",
    ),
    "Unexplained": Meaning(
        "it failed before it could say why",
        "Look at the log, and at `kubectl describe` of what is named.",
        "again",
    ),
    # --- what keeps an attempt from running -------------------------------------------------------
    "Unschedulable": Meaning(
        "no node can take all its pods",
        "Add nodes, wait for a quieter hour, or ask for less: cluster.nodes, gpus_per_node, cpu,"
        " memory, node_selector. cluster.min_nodes lets it continue with fewer.",
        "no_room",
    ),
    "ImagePull": Meaning(
        "its image cannot be pulled",
        "Check ML_ASSETS_TRAINING_IMAGE, and that ML_ASSETS_PULL_SECRET names a Secret that may"
        " read it.",
        "stop",
    ),
    "RegistryAway": Meaning(
        "its image cannot be pulled, because the registry does not answer",
        "See that the nodes reach the registry, and run again.",
        "stop",
    ),
    "InvalidImageName": Meaning(
        "the name of its image is not a valid one",
        "Set ML_ASSETS_TRAINING_IMAGE to repository@sha256:...",
        "stop",
    ),
    "ErrImageNeverPull": Meaning(
        "its image is not on the node, which may not pull it",
        "Put it there, or let the node pull it.",
        "stop",
    ),
    "SignatureValidationFailed": Meaning(
        "its image has no signature that its node accepts",
        "Sign it as the nodes' policy asks, or set ML_ASSETS_TRAINING_IMAGE to one that is.",
        "stop",
    ),
    "CreateContainerConfigError": Meaning(
        "a Secret or ConfigMap that its pods need is missing, or lacks a key",
        "Create what is named in the same namespace; ML_ASSETS_TRAINING_SECRET is the Secret with"
        " the keys to the object store.",
        "stop",
    ),
    "ContainerStart": Meaning(
        "its container cannot be started",
        "Check that ML_ASSETS_TRAINING_IMAGE is the training image of this version.",
        "stop",
    ),
    "VolumeMount": Meaning(
        "a volume of its pods, or their network, cannot be set up",
        "Look at the node that is named; a Secret that is mounted has to be there.",
        "unstarted",
    ),
    "QuotaExceeded": Meaning(
        "the quota of the namespace does not allow its pods",
        "Ask for less, wait until others end, or have the ResourceQuota raised.",
        "no_room",
    ),
    "QuotaTooSmall": Meaning(
        "the whole quota of the namespace is too small for its pods, even if nothing else ran",
        "Ask for less (cluster.nodes, gpus_per_node, cpu, memory), or have the ResourceQuota"
        " raised.",
        "stop",
    ),
    "PodsForbidden": Meaning(
        "the cluster does not allow its pods",
        "Change what is named: a rule of the namespace, a priority class, or a limit.",
        "stop",
    ),
    "QueueMissing": Meaning(
        "its Kueue queue is not there",
        "Set cluster.queue to a LocalQueue of this namespace, or have it made.",
        "stop",
    ),
    "NotStarted": Meaning(
        "its pods did not begin to run, and the cluster gives no reason",
        "Look at `kubectl describe` of what is named; the nodes may pull a large image slowly.",
        "unstarted",
    ),
}


_LONGEST, _HEAD = 500, 120
"""Characters of what somebody said: of all of it, and of its beginning."""


def of_cause(
    cause: str,
    words: str = "",
    pod: PodState | None = None,
    *,
    code: int = 0,
    room: int | None = None,
) -> Ending:
    """The ending that a line of the table describes."""
    line = CAUSES[cause]
    return Ending(
        cause=cause,
        then=line.then,
        what=line.what,
        words=one_line(words),
        remedy=line.remedy,
        code=code or (signed(pod.ended.exit_code) if pod and pod.ended else 0),
        pod=pod.name if pod else None,
        node=pod.node if pod else None,
        room=room,
    )


def signed(exit_code: int) -> int:
    """A container that a signal ended exits with 128 more than it; our tables say minus it."""
    return 128 - exit_code if 128 < exit_code <= 128 + 64 else exit_code


def one_line(text: str) -> str:
    """Return what somebody said, fit for a sentence. The end stays: errors have the cause there."""
    said = " ".join(text.split())
    return said if len(said) <= _LONGEST else f"{said[:_HEAD]} ... {said[_HEAD + 5 - _LONGEST :]}"
