"""How an attempt on a cluster ended: what Kubernetes saw and what its pods said, in one."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ml_assets.launch.failure import Ending, judge, stalled
from ml_assets.launch.kubernetes.diagnosis import PodObservations, diagnose
from ml_assets.launch.kubernetes.following import Over
from ml_assets.launch.kubernetes.manifest import JobOrder
from ml_assets.launch.kubernetes.observations import KubernetesEvent
from ml_assets.settings import PriceClass
from ml_assets.spec.program.events import Event, Failed
from ml_assets.spec.program.exit_codes import EXIT_DONE, EXIT_SUPERSEDED, true_code
from ml_assets.spec.program.pod import TerminationMessage
from ml_assets.spec.usage import Held

Words = Mapping[int, TerminationMessage]
"""Index of a pod -> its termination message."""


@dataclass(frozen=True)
class PodEvidence:
    """All that is known of an attempt that is over."""

    over: Over
    words: Words
    tails: str
    """Ends of the logs of pods that failed and left no termination message."""
    cluster_events: tuple[KubernetesEvent, ...]
    """The cluster's events about its Job."""
    spot: bool

    @property
    def code(self) -> int:
        """The true one of all its pods, as far as they told it."""
        return true_code(0, [word.code for word in self.words.values()])

    @property
    def log(self) -> str:
        """The ends of its pods' logs."""
        said = [f"--- pod {index}: {w.reason}\n{w.log}" for index, w in sorted(self.words.items())]
        return "\n".join([*said, self.tails])

    def ending(self, events: Sequence[Event]) -> Ending:
        """Why it ended, if nobody was told to stop it.

        Args:
            events: that it told.
        """
        if self.over.ending is not None:
            return self.over.ending
        reasons = [event.reason for event in events if isinstance(event, Failed)]
        return diagnose(
            PodObservations(
                self.over.job,
                self.over.pods,
                self.cluster_events,
                [word for _, word in sorted(self.words.items())],
                "\n".join([*reasons, self.log]),
                self.spot,
            )
        )


def ending_of(seen: PodEvidence, events: Sequence[Event], log: Path) -> Ending:
    """What ended it, and what follows.

    Args:
        log: of the attempt.
    """
    over = seen.over
    if over.noticed is not None:
        return stalled(over.noticed)
    if over.told:
        return judge(seen.code or -signal.SIGTERM, events, log, workers=False)
    if over.complete:
        return judge(EXIT_DONE, events, log, workers=False)
    found = seen.ending(events)
    if found.code == EXIT_SUPERSEDED:  # another launcher went on: follow it
        return replace(found, then="lost", cause="Superseded")
    if found.of_program:
        judged = judge(found.code, events, log, workers=False)
        return replace(judged, pod=found.pod, node=found.node)
    return found


def held_by(order: JobOrder, seen: PodEvidence, bought: PriceClass) -> Held:
    """The machines of an attempt that is over, and since when."""
    now, over = datetime.now(UTC), seen.over
    created = over.job.created if over.job and over.job.created else now
    scheduled = [pod.scheduled for pod in over.pods if pod.scheduled is not None]
    started = [pod.started for pod in over.pods if pod.started is not None]
    computes = order.verb in ("train", "measure")
    return Held(
        # a machine that a pod never got was held by nobody; a pod may have been replaced
        nodes=min(len(scheduled), order.world.nodes) or order.world.nodes,
        gpus_per_node=order.cluster.gpus_per_node if computes else 0,
        price_class=bought,
        created=created,
        scheduled=min(scheduled, default=None),
        started=max(started) if len(started) >= order.world.nodes else None,
        ended=max(now, created),
        staged_bytes=sum(word.staged_bytes for word in seen.words.values()),
    )
