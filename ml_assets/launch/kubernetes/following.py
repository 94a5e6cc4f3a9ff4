"""Follows one attempt on a cluster until it is over.

Kubernetes has the state of its Job and pods; the object store has the program's events. Either may
be down for a while: the attempt continues meanwhile, and so does its follower.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ml_assets.errors import StoreAway, StoreRefuses
from ml_assets.launch.attempts import Follower, SessionWork
from ml_assets.launch.events import append_places, append_warning
from ml_assets.launch.failure import Ending
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.informer import JobInformer
from ml_assets.launch.kubernetes.logs import LogFollower
from ml_assets.launch.kubernetes.manifest import HAND_OVER_SECONDS, JobOrder
from ml_assets.launch.kubernetes.names import selector_of
from ml_assets.launch.kubernetes.observations import JobState, PodState
from ml_assets.launch.kubernetes.starting import StartUp, Stuck
from ml_assets.launch.staging.mirror import SessionMirror
from ml_assets.launch.stall_detection import StallDetector
from ml_assets.spec.training_program.events import Checkpoint, Event, Failed, Metrics, Progress
from ml_assets.spec.training_program.exit_codes import EXIT_SAVED_AFTER_NOTICE
from ml_assets.spec.training_program.identity import NodePlace

_TURN_SECONDS = 0.5
"""Between two turns, unless the cluster says something."""
_PULL_SECONDS = (1.0, 10.0)
"""Between two looks for new events: while they come, and at most. Each look is a few requests."""
_LAST_WORDS_SECONDS = 2.0
"""For the pods to leave their termination messages, where none of them can go on."""
_OTHERS_SECONDS = 10.0
"""For the other pods to end after one that failed by itself: one of them may know why."""
_UNREACHABLE = {"DeletionByTaintManager", "DeletionByPodGC"}
"""Why a pod goes whose node does not answer: nobody there will end it, or say why."""


@dataclass(frozen=True)
class Over:
    """Describes how an attempt was seen last, and why it is not followed any more."""

    job: JobState | None
    pods: tuple[PodState, ...]
    """In the order in which they were lost, then by index."""
    ending: Ending | None = None
    """It never came to run."""
    noticed: str | None = None
    """It stood still."""
    told: bool = False
    """Whoever followed it was told to stop."""
    trained: bool = False
    """It told of its work: its pods may have something to save."""

    @property
    def complete(self) -> bool:
        return self.job is not None and self.job.complete


class Following:
    """Follows one attempt.

    Args:
        clock: monotonic seconds.
        lost: when the attempt before it began to lose its pods; None: it did not.
    """

    def __init__(
        self,
        api: KubernetesApi,
        work: SessionWork[Any],
        order: JobOrder,
        mirror: SessionMirror,
        follower: Follower,
        clock: Callable[[], float] = time.monotonic,
        lost: datetime | None = None,
    ) -> None:
        self._api = api
        self._order = order
        self._mirror = mirror
        self._follower = follower
        self._clock = clock
        self._folder = work.folder.attempt(order.attempt)
        self._log = work.folder.log(order.attempt)
        self._stall = StallDetector(self._folder, order.world.processes, clock)
        self._limits = Limits.of(order)
        self._start = StartUp(api, self._limits.room_seconds, clock)
        self._began = clock()
        self._lost_since: float | None = None
        self._saved_since: float | None = None
        self._waits = _PULL_SECONDS[0]
        self._pulls_at = float("-inf")
        self._said: set[str] = set()
        self._placed = False
        self._lost = lost

    def until_over(self) -> Over:
        """Pass on what it tells until it is over.

        Raises:
            ClusterRefused: the cluster does not let us see it.
            ClusterAway: it does so no more, and the attempt goes on.
            StoreRefuses: the object store does not.
        """
        selector = selector_of(self._order.session, self._order.mark)
        pods: tuple[PodState, ...] = ()
        with JobInformer(self._api, selector) as watch, LogFollower(self._api, self._log) as log:
            while True:
                seen = watch.now()
                # the informer forgets the pods of a Job that is gone
                pods = tuple(pod for pod in seen.pods if pod.job == self._order.name) or pods
                for pod in (pod for pod in pods if pod.index == 0 and pod.started):
                    log.follow(pod.name)
                self._place(pods)
                self._pull()
                if (trouble := watch.trouble()) is not None:
                    self._warn("cluster", f"The training continues; its follower waits: {trouble}")
                self._tell_recovery(seen.job(self._order.name), pods)
                over = self._over(seen.job(self._order.name), pods)
                if over is not None:
                    if not self._trained:  # it may have told of its work since the last look
                        self._pulls_at = float("-inf")
                        self._pull()
                    return replace(over, trained=self._trained)
                watch.wait(_TURN_SECONDS)

    def _place(self, pods: Sequence[PodState]) -> None:
        """Say once where all of them run, and from which image."""
        there = [pod for pod in pods if pod.started and pod.image and pod.index is not None]
        if self._placed or len({pod.index for pod in there}) < self._order.world.nodes:
            return
        self._placed = True
        types = {node: self._api.node_type(node) for node in {p.node for p in there} if node}
        places = [
            NodePlace(
                index=pod.index or 0,
                pod=pod.name,
                node=pod.node,
                node_type=types.get(pod.node or ""),
                image=pod.image,
            )
            for pod in sorted(there, key=lambda pod: pod.index or 0)
        ]
        append_places(self._folder, self._order.session, self._order.attempt, places)
        self._follower.pass_on()

    def _tell_recovery(self, job: JobState | None, pods: Sequence[PodState]) -> None:
        """Say once how long the loss before it took, and where."""
        if self._lost is None or job is None:
            return
        told = self._follower.of_attempt(self._order.attempt)
        if (said := recovered(self._lost, job, pods, told)) is not None:
            self._lost = None
            self._warn("recovered", said)

    def _over(self, job: JobState | None, pods: tuple[PodState, ...]) -> Over | None:
        if self._follower.told_to_stop():
            return Over(job, pods, told=True)
        if job is None or job.deleting or job.complete:
            return Over(job, pods)
        if job.failure is not None or any(pod.lost for pod in pods):
            return Over(job, pods) if self._settled(pods) else None
        noticed = self._stall.noticed(self._follower.passed_on)
        if noticed:
            return Over(job, pods, noticed=noticed)
        if job.suspended:  # time in a queue is not counted
            self._began = self._clock()
        waits = self._start.look(job, pods)
        if isinstance(waits, Ending) and self._limits.reached(waits, self._clock() - self._began):
            return Over(job, pods, ending=waits)
        if waits is not None:
            self._say(waits)
        return None

    def _settled(self, pods: Sequence[PodState]) -> bool:
        """Whether there is nothing more to wait for before the rest of the attempt is ended.

        A pod that was told to go has its grace, and with its notice all of them save the same step.
        Where one ended without it, or nothing was trained yet, none of them can: they are given a
        moment to say so; so are all of them once they have saved.
        """
        now = self._clock()
        self._lost_since = now if self._lost_since is None else self._lost_since
        if all(_ended(pod) for pod in pods):
            return True
        lost = [pod for pod in pods if pod.lost]
        if lost and self._trained and all(_leaves_with_grace(pod) for pod in lost):
            if self._saved_since is None and not self._has_saved():
                return now - self._lost_since > self._order.grace_seconds + HAND_OVER_SECONDS
            self._saved_since = now if self._saved_since is None else self._saved_since
            return now - self._saved_since > _LAST_WORDS_SECONDS
        patience = _OTHERS_SECONDS if any(map(_failed_by_itself, lost)) else _LAST_WORDS_SECONDS
        return now - self._lost_since > patience

    @property
    def _trained(self) -> bool:
        """Whether all processes met, and the first rank told of it."""
        told = self._follower.of_attempt(self._order.attempt)
        return any(isinstance(event, (Progress, Metrics, Checkpoint)) for event in told)

    def _has_saved(self) -> bool:
        """Whether what was to be saved after a notice lies there whole: the first rank says so."""
        told = self._follower.of_attempt(self._order.attempt)
        failed = (event for event in told if isinstance(event, Failed) and event.rank == 0)
        return any(event.exit_code == EXIT_SAVED_AFTER_NOTICE for event in failed)

    def _pull(self) -> None:
        """Fetch what was told since, seldom where nothing is, and often at the end."""
        now = self._clock()
        if now < self._pulls_at and self._lost_since is None:
            return
        try:
            came = self._mirror.pull(self._order.attempt)
        except StoreRefuses:
            raise
        except StoreAway as error:  # what is told meanwhile waits in the pods
            came = 0
            self._stall.blind()
            self._warn(
                "store", f"The object store does not answer; the training continues: {error}"
            )
        shortest, longest = _PULL_SECONDS
        self._waits = shortest if came else min(self._waits * 1.5, longest)
        self._pulls_at = now + self._waits
        self._follower.pass_on()

    def _say(self, waits: Stuck | Ending) -> None:
        """Each cause once, and every minute a registry that is away: nothing else tells of it.

        That a container is being made is nothing to speak of.
        """
        if waits.cause != "NotStarted":
            words = f": {waits.words}" if waits.words else ""
            name = f"{self._order.pipeline}: attempt {self._order.attempt}"
            minutes = int((self._clock() - self._began) // 60)
            again = f", {minutes} min by now" if minutes and waits.cause == "RegistryAway" else ""
            self._warn(waits.cause + again, f"{name} waits ({waits.cause}{again}){words}")

    def _warn(self, about: str, message: str) -> None:
        if about not in self._said:
            self._said.add(about)
            append_warning(self._folder, self._order.session, self._order.attempt, message)
            self._follower.pass_on()


@dataclass(frozen=True)
class Limits:
    """Describes how long room is waited for."""

    room_seconds: float
    """After so long it is looked at whether fewer nodes will do."""
    longest: float
    """After so long nothing more is waited for."""
    fewest: int | None
    """Nodes that will do after ``room_seconds``; None: all of them, or none."""

    @classmethod
    def of(cls, order: JobOrder) -> "Limits":
        """A first attempt waits for all its nodes; a later one lost some, and may do with fewer.

        One that stays away from nodes does not wait for long: those will do, too.
        """
        cluster = order.cluster
        longest = cluster.unschedulable_minutes * 60
        least = 0 if order.avoid else cluster.min_nodes
        if order.attempt == 1 or least is None or least >= order.world.nodes:
            return cls(longest, longest, None)
        return cls(min(longest, cluster.shrink_after_minutes * 60), longest, least)

    def reached(self, ending: Ending, seconds: float) -> bool:
        """Return whether an attempt that has waited so long ends so."""
        if ending.then != "no_room" or self.fewest is None:
            return True
        return (ending.room or 0) >= self.fewest or seconds > self.longest


def _ended(pod: PodState) -> bool:
    return pod.gone or pod.phase in ("Succeeded", "Failed")


def _failed_by_itself(pod: PodState) -> bool:
    return pod.ended is not None and 0 < pod.ended.exit_code <= 128


def _leaves_with_grace(pod: PodState) -> bool:
    """Whether it can still save, or has: one that failed takes the others with it, which the Job
    controller then tells to go."""
    if _ended(pod):
        return pod.ended is not None and pod.ended.exit_code == EXIT_SAVED_AFTER_NOTICE
    return pod.disrupted is None or pod.disrupted.reason not in _UNREACHABLE


def recovered(
    lost: datetime, job: JobState, pods: Sequence[PodState], told: Sequence[Event]
) -> str | None:
    """The parts in a sentence; None: the attempt has told of no step yet.

    Args:
        lost: when the attempt before began to lose its pods.
        told: by the attempt, so far.
    """
    stepped = next((event.time for event in told if isinstance(event, Metrics)), None)
    if stepped is None:
        return None
    scheduled = [pod.scheduled for pod in pods if pod.scheduled is not None]
    started = [pod.started for pod in pods if pod.started is not None]
    resumed = next((event.time for event in told if isinstance(event, Progress)), None)
    moments = (
        ("notice, save and end", job.created),
        ("schedule", max(scheduled, default=None)),
        ("image and start", max(started, default=None)),
        ("import, fetch and meet", resumed),
        ("first step told", stepped),
    )
    parts, before = list[str](), lost
    for name, moment in moments:
        if moment is not None:
            now = max(moment, before)  # Kubernetes tells whole seconds, by clocks of its own
            parts.append(f"{name} {(now - before).total_seconds():.0f}")
            before = now
    whole = (before - lost).total_seconds()
    return f"From the lost pod to the next step: {whole:.0f} s ({', '.join(parts)})."
