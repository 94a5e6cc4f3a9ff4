"""What follows an attempt that ended without a result: another one, a smaller one, or none."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from ml_assets.launch.failure import Next
from ml_assets.spec.training import TrainingSpec, split_of

ERROR_BUDGET = 2
"""Attempts after the first with as many processes, for an end that running again may mend."""
KILLS_TO_SHRINK = 2
"""Attempts in a row that SIGKILL ended before one with fewer processes is tried."""


@dataclass(frozen=True)
class Ended:
    """An attempt that ended without a result."""

    procs: int
    code: int
    then: Next


@dataclass(frozen=True)
class Decision:
    """Whether another attempt is made, with how many processes, and why."""

    go_on: bool
    procs: int
    reason: str


def next_attempt(ended: Sequence[Ended], budget: int = ERROR_BUDGET) -> Decision:
    """Decide what follows the attempts that this launcher has made, oldest first.

    A kill that comes back is most often memory running short, and half the processes need half of
    it. The losses then agree to 1e-5, no longer to the bit: float sums in another order.

    Args:
        budget: attempts after the first with as many processes.
    """
    last = ended[-1]
    alike = list(takewhile(lambda one: one.procs == last.procs, reversed(ended)))
    killed = list(takewhile(lambda one: one.code == -signal.SIGKILL, alike))
    if last.then != "again":
        return Decision(False, last.procs, "running again would not mend it")
    if last.procs > 1 and len(killed) >= KILLS_TO_SHRINK:
        procs = last.procs // 2
        reason = (
            f"{procs} instead of {last.procs} processes: SIGKILL ended {len(killed)} attempts in a"
            " row, as it does where memory is short"
        )
        return Decision(True, procs, reason)
    if len(alike) > budget:
        return Decision(False, last.procs, f"it was tried {len(alike)} times")
    return Decision(True, last.procs, f"retry {len(alike)} of {budget}")


def spread_over(training: TrainingSpec, procs: int) -> TrainingSpec:
    """How a training is spread over fewer processes than its spec declares.

    A hybrid needs equal groups of two or more. Shards of the same network are the same training.
    """
    if training.strategy == "hybrid" and split_of(procs, 1) is None:
        return training.model_copy(update={"strategy": "shard"})
    return training
