"""The rules by which Kueue shares a quota, as a small simulator: who is admitted, who gives way.

What is followed (kueue.sigs.k8s.io, "Cluster Queue" and "Preemption"): a workload is admitted whole
or not at all; each queue offers its head by priority, then age (StrictFIFO: nothing passes it);
of the heads those come first that need no borrowing, then by priority, then by age; a queue
borrows what its cohort does not use; a head that fits its queue's own quota takes it back from
borrowers (``reclaimWithinCohort: Any``) and from lower priorities of its own queue
(``withinClusterQueue: LowerPriority``): lowest priority first, then the youngest, and no more of
them than it takes. What becomes free is kept for it. Who gives way keeps its age.

What is left out: nodes (a quota is taken for GPUs that are there, however they are spread), other
resources than GPUs, lending limits, fair sharing, spot nodes that are taken away.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

GPU = "nvidia.com/gpu"
GRACE = 60
"""Seconds from the word to give way until the GPUs are free: a checkpoint is saved."""
START = 120
"""Seconds of a workload's GPUs before its next step: pods begin, data is fetched."""


@dataclass(frozen=True)
class Quota:
    """What a team is guaranteed of a flavor, in GPUs, and what it may borrow beyond."""

    nominal: int
    borrow: float = float("inf")


@dataclass(frozen=True)
class Queue:
    """A ClusterQueue: quota by flavor, and whether its head blocks who comes after it."""

    name: str
    quotas: Mapping[str, Quota]
    strict: bool
    reclaims: bool
    preempts_lower: bool


@dataclass
class Workload:
    """A job of so many GPUs for so many seconds; times are seconds since the trace began."""

    name: str
    queue: str
    flavor: str
    gpus: int
    seconds: float
    created: float
    priority: int = 100
    left: float = field(init=False)
    admitted: float | None = None
    """Since when it holds its GPUs; None: it waits."""
    leaves: float | None = None
    """When its GPUs are free because it gives way."""
    first: float | None = None
    """When it was admitted for the first time."""
    done: float | None = None
    gave_way: int = 0

    def __post_init__(self) -> None:
        self.left = self.seconds

    @property
    def ends(self) -> float:
        """When its GPUs are free, as things stand."""
        assert self.admitted is not None
        return self.admitted + START + self.left if self.leaves is None else self.leaves

    @property
    def age(self) -> tuple[int, float]:
        """Sorts a queue: the higher priority first, then the older."""
        return -self.priority, self.created


class Cohort:
    """Queues that lend each other what they do not use."""

    def __init__(self, queues: Iterable[Queue], *, borrowing: bool = True) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.borrowing = borrowing
        self.waiting: dict[str, list[Workload]] = {name: [] for name in self.queues}
        self.running: list[Workload] = []
        self._held = Counter[tuple[str, str]]()
        """GPUs by queue and flavor."""
        self._reserved = Counter[str]()
        """GPUs by flavor that heads of this round wait for within their own quota."""

    def capacity(self, flavor: str | None = None) -> int:
        """GPUs of all queues."""
        quotas = chain.from_iterable(queue.quotas.items() for queue in self.queues.values())
        return sum(quota.nominal for name, quota in quotas if flavor in (None, name))

    def add(self, workload: Workload) -> None:
        """Let it wait in its queue."""
        self.waiting[workload.queue].append(workload)
        self.waiting[workload.queue].sort(key=lambda one: one.age)

    def remove(self, workload: Workload) -> None:
        """It ended, or gave way: its GPUs are free."""
        self.running.remove(workload)
        self._held[workload.queue, workload.flavor] -= workload.gpus

    def cycle(self, now: float) -> bool:
        """One round of admission: each queue offers its heads. True: something changed."""
        heads = [head for queue in self.queues.values() if (head := self._head(queue)) is not None]
        heads.sort(key=lambda one: (self._borrows(one), one.age))
        self._reserved.clear()
        return any([self._offered(head, now) for head in heads])

    def within_quota(self, workload: Workload) -> bool:
        """Whether its queue's own quota has room for it, whoever borrows that now."""
        quota = self.queues[workload.queue].quotas[workload.flavor]
        return self._used(workload.queue, workload.flavor) + workload.gpus <= quota.nominal

    def _head(self, queue: Queue) -> Workload | None:
        waiting = self.waiting[queue.name]
        if queue.strict:
            return next(iter(waiting), None)
        return next((w for w in waiting if self._fits(w) or self._victims(w)), None)

    def _offered(self, head: Workload, now: float) -> bool:
        if self._fits(head):
            self.waiting[head.queue].remove(head)
            head.admitted = now
            head.first = now if head.first is None else head.first
            self.running.append(head)
            self._held[head.queue, head.flavor] += head.gpus
            return True
        if self.within_quota(head):
            self._reserved[head.flavor] += head.gpus
        victims = self._victims(head)
        for victim in victims:
            _give_way(victim, now)
        return bool(victims)

    def _fits(self, workload: Workload) -> bool:
        quota = self.queues[workload.queue].quotas[workload.flavor]
        wanted = self._used(workload.queue, workload.flavor) + workload.gpus
        if wanted > quota.nominal and (not self.borrowing or wanted > quota.nominal + quota.borrow):
            return False
        if not self.borrowing:
            return True
        used = sum(self._used(name, workload.flavor) for name in self.queues)
        free = self.capacity(workload.flavor) - used - self._reserved[workload.flavor]
        return workload.gpus <= free

    def _borrows(self, workload: Workload) -> bool:
        return not self.within_quota(workload)

    def _used(self, queue: str, flavor: str, without: Sequence[Workload] = ()) -> int:
        gone = sum(one.gpus for one in without if (one.queue, one.flavor) == (queue, flavor))
        return self._held[queue, flavor] - gone

    def _victims(self, head: Workload) -> list[Workload]:
        """Who has to give way so that the head gets its own quota; those that do already aside."""
        leaving = [one for one in self.running if one.leaves is not None]
        chosen = list(leaving)
        for candidate in self._candidates(head):
            if self._fits_without(head, chosen):
                break
            if candidate.queue == head.queue or self._is_borrower(candidate, chosen):
                chosen.append(candidate)
        if not self._fits_without(head, chosen):
            return []
        for spared in [one for one in reversed(chosen) if one not in leaving]:
            rest = [one for one in chosen if one is not spared]
            if self._fits_without(head, rest):
                chosen = rest
        return [one for one in chosen if one not in leaving]

    def _candidates(self, head: Workload) -> list[Workload]:
        queue = self.queues[head.queue]
        there = [w for w in self.running if w.flavor == head.flavor and w.leaves is None]
        others = [w for w in there if w.queue != head.queue] if queue.reclaims else []
        own = [w for w in there if w.queue == head.queue and w.priority < head.priority]
        return [*_by_rank(others), *_by_rank(own if queue.preempts_lower else [])]

    def _is_borrower(self, workload: Workload, without: Sequence[Workload]) -> bool:
        quota = self.queues[workload.queue].quotas[workload.flavor]
        return self._used(workload.queue, workload.flavor, without) > quota.nominal

    def _fits_without(self, head: Workload, without: Sequence[Workload]) -> bool:
        """Whether the head has room within its own quota once those are gone."""
        own = self._used(head.queue, head.flavor, without) + head.gpus
        used = sum(self._used(name, head.flavor, without) for name in self.queues)
        room = not self.borrowing or used + head.gpus <= self.capacity(head.flavor)
        return room and own <= self.queues[head.queue].quotas[head.flavor].nominal


def _by_rank(running: Iterable[Workload]) -> list[Workload]:
    return sorted(running, key=lambda one: (one.priority, -(one.admitted or 0)))


def _give_way(victim: Workload, now: float) -> None:
    assert victim.admitted is not None
    stepped = max(0.0, now - victim.admitted - START)
    victim.left -= min(stepped, victim.left)
    victim.leaves = min(now + GRACE, now + START + victim.left)
    victim.gave_way += 1


def read_queues(folder: Path) -> list[Queue]:
    """The ClusterQueues that a folder of manifests declares.

    Raises:
        ValueError: one has a rule that this simulator does not know.
    """
    documents = list(yaml.safe_load_all((folder / "cluster-queues.yaml").read_text()))
    return [_queue(one["metadata"]["name"], one["spec"]) for one in documents]


def _queue(name: str, spec: Mapping[str, Any]) -> Queue:
    unknown = set(spec) & {"fairSharing", "flavorFungibility", "admissionChecksStrategy"}
    if unknown:
        raise ValueError(f"{name} has {sorted(unknown)}, which this simulator does not know")
    quotas: dict[str, Quota] = {}
    for flavor in chain.from_iterable(group["flavors"] for group in spec["resourceGroups"]):
        for resource in flavor["resources"]:
            if "lendingLimit" in resource:
                raise ValueError(f"{name} has a lendingLimit, which this simulator does not know")
            if resource["name"] == GPU:
                borrow = float(resource.get("borrowingLimit", "inf"))
                quotas[flavor["name"]] = Quota(int(resource["nominalQuota"]), borrow)
    preemption = spec.get("preemption", {})
    return Queue(
        name,
        quotas,
        strict=spec.get("queueingStrategy") == "StrictFIFO",
        reclaims=preemption.get("reclaimWithinCohort") == "Any",
        preempts_lower=preemption.get("withinClusterQueue") == "LowerPriority",
    )
