"""Where the seconds went between a lost pod and the next training step."""

from collections.abc import Sequence
from datetime import datetime

from ml_assets.launch.kubernetes.observations import JobState, PodState
from ml_assets.spec.program.events import Event, Metrics, Progress


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
