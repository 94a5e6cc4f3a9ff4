"""Decides what follows an attempt without a result: another one, a smaller one, or none."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from ml_assets.errors import counted
from ml_assets.launch.failure import Ending, Next
from ml_assets.spec.parallel import split_of
from ml_assets.spec.training import TrainingSpec
from ml_assets.spec.training_program import World

ERROR_BUDGET = 2
"""Attempts after the first with as many processes, for an end that running again may mend."""
LOSS_BUDGET = 10
"""Attempts in a row that lost their machines before they saved anything. A loss after a checkpoint
costs nothing: what is taken away now and then gets there, too."""
START_BUDGET = 3
"""Attempts in a row that ended before the program ran."""
KILLS_TO_SHRINK = 2
"""Attempts in a row that SIGKILL ended before one with fewer processes is tried."""
MOST_AVOIDED = 16
"""Nodes that a session stays away from at a time, the newest: where more have failed it is hardly
the nodes."""


@dataclass(frozen=True)
class Budgets:
    """Describes how often an attempt is made again; each kind of end has a budget of its own."""

    errors: int = ERROR_BUDGET
    losses: int = LOSS_BUDGET
    starts: int = START_BUDGET


@dataclass(frozen=True)
class EndedAttempt:
    """An attempt that ended without a result."""

    world: World
    ending: Ending
    saved: bool = False
    """It left a checkpoint: the next one goes on from there."""

    @property
    def then(self) -> Next:
        """Return what its end calls for."""
        return self.ending.then


@dataclass(frozen=True)
class RetryDecision:
    """Says whether another attempt is made, with which processes, where, and why."""

    go_on: bool
    world: World
    reason: str
    avoid: tuple[str, ...] = ()
    """Nodes that it stays away from."""


def next_attempt(
    ended: Sequence[EndedAttempt],
    budgets: Budgets | None = None,
    min_nodes: int | None = None,
    avoided: Sequence[str] = (),
) -> RetryDecision:
    """Decide what follows the attempts that this launcher has made, oldest first.

    Args:
        min_nodes: fewer nodes than this are not worth it; None: only as many as there were.
        avoided: nodes that the last one stayed away from, whoever made it.
    """
    budgets, last = budgets or Budgets(), ended[-1]
    if last.then == "no_room":
        return _after_no_room(last, min_nodes, tuple(avoided))
    failed = last.ending.avoid
    others = [node for node in avoided if node != failed]
    avoid = (*others, *([failed] if failed else []))[-MOST_AVOIDED:]
    return replace(_in_its_place(ended, budgets), avoid=avoid)


def _in_its_place(ended: Sequence[EndedAttempt], budgets: Budgets) -> RetryDecision:
    """What follows an attempt that had room."""
    last = ended[-1]
    match last.then:
        case "again":
            return _after_error(ended, budgets.errors)
        case "lost":
            # one that found no room in between may have been for the nodes that were avoided
            ran = [one for one in ended if one.then != "no_room"]
            row = _in_a_row(ran, lambda one: one.then == "lost" and not one.saved)
            told = "the machines were lost, which is no error of the training"
            return _within(row, budgets.losses, last.world, told)
        case "unstarted":
            row = _in_a_row(ended, lambda one: one.then == "unstarted")
            return _within(row, budgets.starts, last.world, "its processes never started")
        case "stop" | "interrupted" | "no_room":
            return RetryDecision(False, last.world, "running again would not help")


def _after_error(ended: Sequence[EndedAttempt], budget: int) -> RetryDecision:
    """A kill that comes back is most often memory running short, and half the processes of a node
    need half of it. The losses then agree to 1e-5, no longer to the bit: float sums in another
    order."""
    world = ended[-1].world
    errors = [one for one in ended if one.then == "again"]
    alike = list(takewhile(lambda one: one.world == world, reversed(errors)))
    killed = list(takewhile(lambda one: one.ending.code == -signal.SIGKILL, alike))
    if world.procs > 1 and len(killed) >= KILLS_TO_SHRINK:
        fewer = world.model_copy(update={"procs": world.procs // 2})
        reason = (
            f"with {fewer.processes} instead of {counted(world.processes, 'process')}, because"
            f" SIGKILL ended {counted(len(killed), 'attempt')} in a row, which is how a lack of"
            " memory shows"
        )
        return RetryDecision(True, fewer, reason)
    if len(alike) > budget:
        return RetryDecision(False, world, f"it was tried {counted(len(alike), 'time')}")
    return RetryDecision(True, world, f"retry {len(alike)} of {budget}")


def _after_no_room(
    last: EndedAttempt, min_nodes: int | None, avoided: tuple[str, ...]
) -> RetryDecision:
    """Fewer nodes, each with as many processes: what a machine holds does not change.

    Nodes that failed are left out as long as others will do, and are better than none.
    """
    nodes, room = last.world.nodes, last.ending.room or 0
    if min_nodes is not None and min_nodes <= room < nodes:
        reason = f"on {room} instead of {nodes} nodes, because there was no room for more"
        return RetryDecision(True, last.world.model_copy(update={"nodes": room}), reason, avoided)
    if avoided:
        reason = f"no other nodes had room, so it may use {', '.join(avoided)} again"
        return RetryDecision(True, last.world, reason)
    least = nodes if min_nodes is None else min_nodes
    return RetryDecision(
        False,
        last.world,
        f"there was room for {counted(room, 'node')}, and it needs at least {least}",
    )


def _within(row: int, budget: int, world: World, told: str) -> RetryDecision:
    if row > budget:
        return RetryDecision(False, world, f"{told}, {row} times in a row with nothing saved")
    return RetryDecision(True, world, f"{told}" + (f"; {row} of {budget} in a row" if row else ""))


def _in_a_row(ended: Sequence[EndedAttempt], alike: Callable[[EndedAttempt], bool]) -> int:
    return len(list(takewhile(alike, reversed(ended))))


def spread_over(training: TrainingSpec, procs: int) -> TrainingSpec:
    """Return how a training is spread over fewer processes than its spec declares.

    A hybrid needs equal groups of two or more, an axis of tensors a multiple of its length. Shards
    of the same network are the same training.
    """
    training = training.model_copy(update={"parallel": training.parallel.over(procs)})
    if training.strategy == "hybrid" and split_of(procs, 1) is None:
        return training.model_copy(update={"strategy": "shard"})
    return training
