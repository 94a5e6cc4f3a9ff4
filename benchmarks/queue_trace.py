"""A day of three teams that together want more GPUs than there are, and its replay."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from benchmarks.queue_rules import Cohort, Queue, Workload

HOUR = 3600.0
DAY = 24 * HOUR
BEFORE = 12 * HOUR
"""The replay begins so long before the day that counts: the cluster is busy when it begins."""
SIZES = (1, 2, 4, 8, 16)
SHARES = (0.15, 0.2, 0.25, 0.25, 0.15)
URGENT = 0.1
"""Share of jobs with the higher priority."""
BUSY = {"forecasting": (0, 9), "search": (8, 18), "research": (15, 24)}
"""Hours in which a team wants several times what it wants in the others."""


def make_trace(queues: Sequence[Queue], demand: float = 1.15, seed: int = 0) -> list[Workload]:
    """Jobs of every team, so that each wants ``demand`` times its share of the GPUs in a day."""
    draw = random.Random(seed)
    found: list[Workload] = []
    for queue in queues:
        for flavor, quota in queue.quotas.items():
            for midnight in (BEFORE - DAY, BEFORE):
                wanted = demand * quota.nominal * DAY
                while wanted > 0:
                    job = _job(draw, f"{queue.name}-{len(found)}", queue.name, flavor)
                    job.gpus = min(job.gpus, quota.nominal // 2)
                    job.created += midnight
                    wanted -= job.gpus * job.seconds
                    found.append(job)
    return sorted((one for one in found if one.created >= 0), key=lambda one: one.created)


def _job(draw: random.Random, name: str, queue: str, flavor: str) -> Workload:
    gpus = draw.choices(SIZES, SHARES)[0]
    seconds = min(max(draw.lognormvariate(0.2, 0.8), 0.1), 8.0) * HOUR
    hour = (
        draw.uniform(*BUSY[queue.removesuffix("-spot")])
        if draw.random() < 0.75
        else draw.uniform(0, 24)
    )
    priority = 1000 if draw.random() < URGENT else 100
    return Workload(name, queue, flavor, gpus, seconds, hour * HOUR, priority)


@dataclass
class Day:
    """What became of a day, from its first to its last second."""

    capacity: int
    wanted: float = 0.0
    """GPU-seconds that jobs asked for, over those there are."""
    used: float = 0.0
    """GPU-seconds held, over those there are."""
    guaranteed: float = 0.0
    """The longest that the head of a queue waited for quota that is its own, seconds."""
    waits: list[float] = field(default_factory=list)
    """How long each job waited until it first began, or has waited so far, seconds; sorted."""
    gave_way: int = 0
    """Times that a job gave way to the owner of its GPUs."""
    ended: int = 0


class Moments:
    """When something happens, each once, in order."""

    def __init__(self, moments: Iterable[float]) -> None:
        self._heap: list[float] = []
        self._known = set[float]()
        self.add(moments)

    def add(self, moments: Iterable[float]) -> None:
        for moment in moments:
            if moment not in self._known:
                self._known.add(moment)
                heappush(self._heap, moment)

    def next(self) -> float:
        """Infinity: nothing more happens."""
        return heappop(self._heap) if self._heap else float("inf")


def replay(queues: Sequence[Queue], trace: Iterable[Workload], *, borrowing: bool = True) -> Day:
    """Replay a trace by the rules; the trace's workloads are used up by it."""
    cohort = Cohort(queues, borrowing=borrowing)
    jobs = list(trace)
    day = Day(cohort.capacity())
    asked = sum(job.gpus * job.seconds for job in jobs if BEFORE <= job.created < BEFORE + DAY)
    day.wanted = asked / (day.capacity * DAY)
    moments = Moments(job.created for job in jobs)
    pending, now, owed = iter(jobs), 0.0, dict[str, float]()
    coming = next(pending, None)
    while (moment := moments.next()) <= BEFORE + DAY:
        _count(cohort, day, now, moment)
        now = moment
        _end_those_due(cohort, now)
        while coming is not None and coming.created <= now:
            cohort.add(coming)
            coming = next(pending, None)
        while cohort.cycle(now):
            pass
        _note_owed(cohort, owed, day, now)
        moments.add(one.ends for one in cohort.running)
    _count(cohort, day, now, BEFORE + DAY)
    began = [job for job in jobs if job.created <= BEFORE + DAY]
    day.waits = sorted((BEFORE + DAY if j.first is None else j.first) - j.created for j in began)
    day.gave_way = sum(job.gave_way for job in jobs)
    day.ended = sum(job.done is not None for job in jobs)
    return day


def _count(cohort: Cohort, day: Day, since: float, until: float) -> None:
    held = sum(one.gpus for one in cohort.running)
    seconds = max(0.0, min(until, BEFORE + DAY) - max(since, BEFORE))
    day.used += held * seconds / (day.capacity * DAY)


def _end_those_due(cohort: Cohort, now: float) -> None:
    for one in [one for one in cohort.running if one.ends <= now]:
        cohort.remove(one)
        if one.leaves is None or one.left <= 0:
            one.done = now
        else:
            one.admitted = one.leaves = None
            cohort.add(one)


def _note_owed(cohort: Cohort, owed: dict[str, float], day: Day, now: float) -> None:
    """Since when each head of a queue waits although its queue's own quota has room for it."""
    heads = [waiting[0] for waiting in cohort.waiting.values() if waiting]
    there = {head.name for head in heads if cohort.within_quota(head)}
    for name in [name for name in owed if name not in there]:
        day.guaranteed = max(day.guaranteed, now - owed.pop(name))
    for name in there:
        day.guaranteed = max(day.guaranteed, now - owed.setdefault(name, now))
