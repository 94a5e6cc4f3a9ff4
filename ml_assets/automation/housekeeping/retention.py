"""Decides what house-keeping keeps and deletes, and why: a pure function of the inventory.

A thing goes when nothing reaches it, nobody uses it, and it is older than the limit of its kind.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, get_args

from ml_assets.errors import counted
from ml_assets.settings import Retention

Kind = Literal[
    "history",
    "quarantine",
    "shards",
    "checkpoints",
    "sessions",
    "models",
    "reports",
    "run_logs",
    "scratch",
]
KINDS: tuple[Kind, ...] = get_args(Kind)


def commit_name(commit: str) -> str:
    """The name of a state of ``main`` among the things; a bare id in a record does not keep it."""
    return f"commit {commit}"


def run_name(run: str) -> str:
    """The name of a Dagster run's log among the things."""
    return f"run {run}"


def checkpoints_of(session: str) -> str:
    """The name of a session's checkpoints among the things."""
    return f"{session}/checkpoints"


def report_of(model: str) -> str:
    """The name of the page about a model among the things."""
    return model[:16]


@dataclass(frozen=True)
class Thing:
    """A thing that may be deleted as a whole."""

    kind: Kind
    name: str
    """Unique in its kind."""
    files: int
    bytes: int
    used: datetime
    """When it was made, or taken up again."""
    busy: str = ""
    """Whoever works with it now; empty: nobody."""
    needs: tuple[str, ...] = ()
    """Names of other things that it is of no use without."""
    path: Path | None = None
    """Where it lies; None for what is no file of its own: a commit, a run."""
    address: str | None = None
    """Where it lies on S3, or checkpoints that are not in their session's folder; ``path`` is then
    what this machine has of it."""


@dataclass(frozen=True)
class RetentionDecision:
    thing: Thing
    keep: bool
    reason: str


@dataclass(frozen=True)
class DeletionPlan:
    """A verdict on everything; deletes nothing."""

    verdicts: tuple[RetentionDecision, ...]

    def kept(self, kind: Kind) -> tuple[RetentionDecision, ...]:
        return tuple(v for v in self.verdicts if v.thing.kind == kind and v.keep)

    def dropped(self, kind: Kind) -> tuple[RetentionDecision, ...]:
        return tuple(v for v in self.verdicts if v.thing.kind == kind and not v.keep)


def decide(
    things: Iterable[Thing], reached: Mapping[str, str], retention: Retention, now: datetime
) -> DeletionPlan:
    """Judge everything; what a kept thing needs is kept with it.

    Args:
        things: what is there.
        reached: name -> why it must stay.
    """
    by_name: dict[str, list[Thing]] = {}
    for thing in things:
        by_name.setdefault(thing.name, []).append(thing)
    every = [thing for named in by_name.values() for thing in named]
    verdicts = {(t.kind, t.name): _judge(t, reached, retention, now) for t in every}
    frontier = [thing for thing in every if verdicts[thing.kind, thing.name].keep]
    while frontier:
        user = frontier.pop()
        for needed in (thing for name in user.needs for thing in by_name.get(name, ())):
            if not verdicts[needed.kind, needed.name].keep:
                reason = f"{user.name} needs it"
                verdicts[needed.kind, needed.name] = RetentionDecision(needed, True, reason)
                frontier.append(needed)
    return DeletionPlan(tuple(verdicts.values()))


def in_words(time: timedelta) -> str:
    """Whole days, or hours below two days."""
    hours = int(time.total_seconds() // 3600)
    return counted(hours // 24, "day") if hours >= 48 else counted(hours, "hour")


def _judge(
    thing: Thing, reached: Mapping[str, str], retention: Retention, now: datetime
) -> RetentionDecision:
    age = now - thing.used
    limit: timedelta = getattr(retention, thing.kind)
    if thing.busy:
        return RetentionDecision(thing, True, thing.busy)
    if thing.name in reached:
        return RetentionDecision(thing, True, reached[thing.name])
    if age < retention.grace:
        return RetentionDecision(
            thing, True, f"younger than the grace of {in_words(retention.grace)}"
        )
    if age < limit:
        return RetentionDecision(thing, True, f"{in_words(age)} old; kept for {in_words(limit)}")
    return RetentionDecision(thing, False, f"nothing refers to it, {in_words(age)} old")
