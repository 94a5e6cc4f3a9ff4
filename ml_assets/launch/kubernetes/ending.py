"""How an attempt on a cluster ended: what Kubernetes saw and what its pods said, in one."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ml_assets.errors import TrainingFailed, TrainingInterrupted
from ml_assets.launch.failure import Ending, judge, stood_still
from ml_assets.launch.kubernetes.causes import Verdict
from ml_assets.launch.kubernetes.following import Over
from ml_assets.launch.kubernetes.manifest import JobOrder
from ml_assets.launch.kubernetes.observations import Happening
from ml_assets.launch.kubernetes.verdict import LastWord, Scene, verdict
from ml_assets.settings import PriceClass
from ml_assets.spec.program.events import Event, Failed
from ml_assets.spec.program.exit_codes import EXIT_DONE, EXIT_SUPERSEDED, true_code
from ml_assets.spec.program.pod import TerminationMessage
from ml_assets.spec.usage import Held

Words = Mapping[int, TerminationMessage]
"""Index of a pod -> its last word."""


@dataclass(frozen=True)
class Evidence:
    """All that is known of an attempt that is over."""

    over: Over
    words: Words
    tails: str
    """Ends of the logs of pods that failed and had no last word."""
    happenings: tuple[Happening, ...]
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

    def verdict(self, events: Sequence[Event]) -> Verdict:
        """Why it ended, if nobody was told to stop it.

        Args:
            events: that it told.
        """
        if self.over.verdict is not None:
            return self.over.verdict
        reasons = [event.reason for event in events if isinstance(event, Failed)]
        last = [LastWord(i, word.code, word.reason) for i, word in sorted(self.words.items())]
        said = "\n".join([*reasons, self.log])
        scene = Scene(self.over.job, self.over.pods, self.happenings, last, said, self.spot)
        return verdict(scene)


def ending_of(name: str, seen: Evidence, events: Sequence[Event], log: Path) -> Ending:
    """What follows, and the error that says why.

    Args:
        name: of the attempt, for an operator.
        log: of the attempt.
    """
    over = seen.over
    if over.noticed is not None:
        return stood_still(name, over.noticed, log)
    if over.told:
        return judge(name, seen.code or -signal.SIGTERM, events, log, workers=False)
    if over.complete:
        return judge(name, EXIT_DONE, events, log, workers=False)
    found = seen.verdict(events)
    if found.code == EXIT_SUPERSEDED:  # another launcher went on: follow it
        error = TrainingFailed(found.report(name))
        return Ending(found.code, "lost", error, "Superseded", found.said)
    if found.of_program:
        judged = judge(name, found.code, events, log, workers=False)
        return replace(judged, pod=found.pod, node=found.node)
    error = TrainingInterrupted if found.then == "interrupted" else TrainingFailed
    return Ending(
        found.code,
        found.then,
        error(f"{found.report(name)}\n  Log: {log}"),
        found.cause,
        found.said,
        found.pod,
        found.node,
        found.avoid,
        found.room,
    )


def held_by(order: JobOrder, seen: Evidence, bought: PriceClass) -> Held:
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
