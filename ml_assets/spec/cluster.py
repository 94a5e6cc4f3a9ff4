"""The machines of a cluster that a training asks for; a laptop ignores them.

The distribution of the work changes no result, so nothing here is part of a session's name or of a
code version: a change trains nothing again.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ml_assets.settings.cluster import (
    bytes_of,
    cores_of,
    is_dns_label,
    is_dns_subdomain,
    is_label_key,
    is_label_value,
)
from ml_assets.spec.base import Frozen, Misfit, Positive
from ml_assets.spec.parallel import split_of
from ml_assets.spec.training import Boosted, ModelSpec, Task, TrainingSpec
from ml_assets.spec.training_program import World

MAX_NODES = 9999
"""The index of a pod has four digits in its name."""


def _number_as_text(value: object) -> object:
    """YAML reads ``cpu: 2`` as a number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(Decimal(str(value))) if number else value


def _cpu(value: str) -> str:
    if cores_of(value) is None:
        raise ValueError(f"{value!r} is not a number of cores: write 2, 0.5 or 500m")
    return value


def _bytes(value: str) -> str:
    if bytes_of(value) is None:
        raise ValueError(f"{value!r} is not a size: write 500Mi, 4Gi or 1.5Ti (or M, G and T)")
    return value


def _label_key(value: str) -> str:
    if not is_label_key(value):
        raise ValueError(f"{value!r} is not the key of a label: write name or domain.example/name")
    return value


def _label_value(value: str) -> str:
    if not is_label_value(value):
        raise ValueError(
            f"{value!r} is not the value of a label: 63 letters, digits, '-', '_' and '.' at most,"
            " beginning and ending with a letter or digit"
        )
    return value


def _resource(value: str) -> str:
    if "/" not in _label_key(value) or value.startswith(("kubernetes.io/", "requests.")):
        raise ValueError(f"{value!r} is not a device of a node: write vendor.example/name")
    return value


def _queue(value: str) -> str:
    if not is_dns_label(value):
        raise ValueError(
            f"{value!r} is not the name of a queue: lower-case letters, digits and '-', at most 63"
        )
    return value


def _class(value: str) -> str:
    if not is_dns_subdomain(value):
        raise ValueError(
            f"{value!r} is not the name of a priority class: lower-case letters, digits, '-' and "
            "'.'"
        )
    return value


CpuQuantity = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_cpu)]
ByteQuantity = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_bytes)]
LabelKey = Annotated[str, AfterValidator(_label_key)]
LabelValue = Annotated[str, AfterValidator(_label_value)]
ResourceName = Annotated[str, AfterValidator(_resource)]
QueueName = Annotated[str, AfterValidator(_queue)]
ClassName = Annotated[str, AfterValidator(_class)]


class Toleration(Frozen):
    """A taint of nodes on which the pods may run all the same."""

    key: LabelKey
    """The taint's key."""
    value: LabelValue | None = None
    """The taint's value; None: any."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; None: any."""


class ClusterSpec(Frozen):
    """Nodes, what each has, and how long to wait for them.

    ``training.processes`` is the number of processes in all, wherever they run: each node runs
    ``processes / nodes`` of them, one to a GPU. Scores and sanity checks use one pod and no GPU.
    """

    nodes: Annotated[int, Field(gt=0, le=MAX_NODES)] = 1
    """Pods of a training; divides ``training.processes``."""
    gpus_per_node: Annotated[int, Field(ge=0)] = 0
    """0: the processes compute on the CPU."""
    gpu_resource: ResourceName = "nvidia.com/gpu"
    """The nodes' name for GPUs."""
    cpu: CpuQuantity = "2"
    """The cores guaranteed to a pod; it may also use idle ones."""
    memory: ByteQuantity = "4Gi"
    """Memory of a pod, at least and at most; ``shared_memory`` is part of it."""
    shared_memory: ByteQuantity = "1Gi"
    """Size of /dev/shm, through which the processes of a node exchange tensors."""
    scratch: ByteQuantity = "20Gi"
    """Disk of a pod: the training set, checkpoints on their way to the store, logs."""
    data_cache: ByteQuantity | None = None
    """The part of ``scratch`` for rows of the training split, which are fetched as training comes
    to them, for a set that is larger; needs ``training.order: blocks``. None: a pod fetches the
    whole split before it begins."""
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: tuple[Toleration, ...] = Field(default=(), strict=False)
    priority_class: ClassName | None = None
    """Kubernetes' PriorityClass, which decides evictions."""
    queue: QueueName | None = None
    """Kueue's LocalQueue, which starts the whole training when there is room; None: at once."""
    queue_priority: QueueName | None = None
    """Kueue's WorkloadPriorityClass, which decides the order in the queue."""
    spread_over: LabelKey | None = None
    """Key of the label over whose values the pods are spread as evenly as there is room, such as
    topology.kubernetes.io/zone; None: they are not."""
    min_nodes: Positive | None = None
    """Fewest nodes to go on with when one is lost and no other comes; None: never fewer."""
    shrink_after_minutes: Annotated[float, Field(gt=0, le=5)] = 5
    """How long a lost node is waited for before fewer do."""
    unschedulable_minutes: Annotated[float, Field(gt=0)] = 60
    """How long pods that find no node are waited for at first; time in a queue is not counted."""
    deadline_hours: Annotated[float, Field(gt=0, le=24 * 365)] = 72
    """The longest time of one attempt, in hours."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems: list[str] = []
        if (bytes_of(self.shared_memory) or 0) >= (bytes_of(self.memory) or 0):
            problems.append(
                f"shared_memory {self.shared_memory} is taken from memory {self.memory}: it must be"
                " smaller"
            )
        if (bytes_of(self.data_cache or "0") or 0) >= (bytes_of(self.scratch) or 0):
            problems.append(
                f"data_cache {self.data_cache} is a part of scratch {self.scratch}: it must be"
                " smaller"
            )
        if self.min_nodes is not None and self.min_nodes > self.nodes:
            problems.append(f"min_nodes {self.min_nodes} is more than nodes {self.nodes}")
        if self.queue_priority is not None and self.queue is None:
            problems.append("queue_priority needs a queue: set queue, or remove queue_priority")
        if problems:
            raise ValueError("; ".join(problems))
        return self


def over_nodes(world: World, cluster: ClusterSpec) -> World:
    """The same processes on the nodes of a cluster, as many on each."""
    nodes = cluster.nodes
    return world.model_copy(update={"nodes": nodes, "procs": world.processes // nodes})


def cluster_problems(
    cluster: ClusterSpec, model: ModelSpec, training: TrainingSpec, task: Task
) -> Iterator[Misfit]:
    """Yield what a cluster and the training on it do not agree about."""
    nodes, gpus = cluster.nodes, cluster.gpus_per_node
    if isinstance(model, Boosted):
        alone = "grows trees in one process, on the CPU"
        wrong = {
            "nodes": (nodes > 1, alone),
            "gpus_per_node": (gpus > 0, alone),
            "data_cache": (cluster.data_cache is not None, "reads all rows at once"),
        }
        for name, (is_wrong, why) in wrong.items():
            if is_wrong:
                said = f"cluster.{name}: model.family {model.family!r} {why}; remove it"
                yield Misfit(("cluster", name), said)
        return
    yield from _cache_problems(cluster, training, task)
    processes = training.processes
    if processes % nodes:
        said = (
            f"cluster.nodes {nodes} must divide training.processes {processes}: each node runs as"
            " many as the next"
        )
        yield Misfit(("cluster", "nodes"), said)
        return
    here = processes // nodes
    if gpus and gpus != here:
        said = (
            f"cluster.gpus_per_node {gpus} must be training.processes / cluster.nodes, which is"
            f" {here}: each process takes one GPU; set training.processes to {nodes * gpus}"
        )
        yield Misfit(("cluster", "gpus_per_node"), said)
    if training.strategy == "hybrid" and nodes > 1 and split_of(processes, here) != (nodes, here):
        said = (
            f"training.strategy hybrid keeps the shards within a node, and each of cluster.nodes"
            f" {nodes} runs {here} of training.processes {processes}: run two or more on each, or"
            " set training.strategy to shard"
        )
        yield Misfit(("cluster", "nodes"), said)


def _cache_problems(cluster: ClusterSpec, training: TrainingSpec, task: Task) -> Iterator[Misfit]:
    if cluster.data_cache is None:
        return
    where, name = ("cluster", "data_cache"), "cluster.data_cache"
    if training.order != "blocks":
        said = (
            "rows are fetched by blocks, and in an order of rows each step would fetch hundreds of"
            " them: set training.order: blocks, or remove it"
        )
        yield Misfit(where, f"{name}: {said}")
    if task == "language_model":
        said = "texts are one stream of tokens, mapped from the disk: remove it"
        yield Misfit(where, f"{name}: {said}")
    if task == "ranking":
        said = "the queries of a ranking are known from all of its rows: remove it"
        yield Misfit(where, f"{name}: {said}")
