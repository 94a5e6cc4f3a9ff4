"""Splits a session's machine time by use: a pure function of its attempts.

All numbers are integers: microseconds of one machine, times machines. The parts of an attempt add
up to its node-time exactly, from its request to its end.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Literal, get_args

from ml_assets.spec.usage import AttemptUsage, Mark

Part = Literal["useful", "recomputed", "stalled", "queued", "failed", "refused"]
"""``useful``: in a result that counts, or in a trial that was pruned. ``recomputed``: steps after
the checkpoint that a later start went on from, and the later starts. ``stalled``: machines held
while nothing moved: images were pulled, other machines waited for, steps waited for data, it stood
still. ``queued``: no machine was held yet. ``failed``: work of a session without a result.
``refused``: work on a model that a gate then refused."""
PARTS: tuple[Part, ...] = get_args(Part)
PAID: tuple[Part, ...] = tuple(part for part in PARTS if part != "queued")
"""Nobody pays for what is not held."""
Standing = Literal["useful", "failed", "refused"]
"""What the work of a session that was neither lost nor waiting counts as."""
Split = Mapping[Part, int]
"""Microseconds of machines by what they were used for; all parts are there."""
MICROSECOND = timedelta(microseconds=1)


def nothing() -> dict[Part, int]:
    """No time at all."""
    return dict.fromkeys(PARTS, 0)


def total(splits: Sequence[Split]) -> dict[Part, int]:
    """Part by part."""
    return {part: sum(one[part] for one in splits) for part in PARTS}


def node_time(usage: AttemptUsage) -> int:
    """Microseconds from asking for an attempt to its end, times its machines."""
    moments = _Moments.of(usage)
    return (moments.ended - moments.created) * usage.held.nodes


def split_session(attempts: Sequence[AttemptUsage], standing: Standing) -> list[dict[Part, int]]:
    """Return what each attempt of one session was used for.

    Args:
        attempts: all that are known, oldest first.
        standing: what the session's work counts as.
    """
    found: list[dict[Part, int]] = []
    goes_on_from: int | None = None
    for place in reversed(range(len(attempts))):
        attempt = attempts[place]
        kept = _Kept(first=place == 0, last=place == len(attempts) - 1, standing=standing)
        spent = nothing()
        for part, time in _parts(attempt, kept, goes_on_from):
            spent[part] += time * attempt.held.nodes
        found.append(spent)
        resumed = min((mark.step for mark in attempt.marks), default=None)
        goes_on_from = _least(goes_on_from, resumed)
    return found[::-1]


@dataclass(frozen=True)
class _Kept:
    """What of an attempt is kept, whatever its steps are."""

    first: bool
    last: bool
    standing: Standing


@dataclass(frozen=True)
class _Moments:
    """Microseconds since the attempt was asked for; each at or after the one before."""

    created: int
    scheduled: int
    started: int
    ended: int

    @classmethod
    def of(cls, usage: AttemptUsage) -> "_Moments":
        held = usage.held
        ended = max(0, _since(held.created, held.ended))
        scheduled = _since(held.created, held.scheduled or held.started or held.ended)
        scheduled = min(max(0, scheduled), ended)
        started = _since(held.created, held.started or held.ended)
        return cls(0, scheduled, min(max(scheduled, started), ended), ended)


def _parts(
    usage: AttemptUsage, kept: _Kept, goes_on_from: int | None
) -> Iterator[tuple[Part, int]]:
    """The attempt's time from its first moment to its last, piece by piece, of one machine."""
    moments = _Moments.of(usage)
    yield "queued", moments.scheduled - moments.created
    yield "stalled", moments.started - moments.scheduled
    if not usage.marks:
        yield _rest(usage, kept), moments.ended - moments.started
        return
    marks = [(min(max(1000 * m.after, moments.started), moments.ended), m) for m in usage.marks]
    begun, last = marks[0][0], max(at for at, _ in marks)
    yield kept.standing if kept.first else "recomputed", begun - moments.started
    yield from _steps(marks, kept.standing, goes_on_from)
    yield _rest(usage, kept), moments.ended - last


def _steps(
    marks: Sequence[tuple[int, Mark]], standing: Standing, goes_on_from: int | None
) -> Iterator[tuple[Part, int]]:
    """Between the first mark and the last, from the end: what comes later says what was lost."""
    for (begin, before), (end, after) in reversed(list(pairwise(_in_order(marks)))):
        time, steps = end - begin, after.step - before.step
        if steps <= 0:  # its processes began again from a checkpoint
            yield "recomputed", time
            goes_on_from = _least(goes_on_from, after.step)
            continue
        again = 0 if goes_on_from is None else after.step - max(before.step, goes_on_from)
        lost = time * max(0, again) // steps
        waited = int((time - lost) * after.waited)
        yield "recomputed", lost
        yield "stalled", waited
        yield standing, time - lost - waited


def _in_order(marks: Sequence[tuple[int, Mark]]) -> Iterator[tuple[int, Mark]]:
    """No mark before the one that was told before it: clocks are set back now and then."""
    latest = 0
    for at, mark in marks:
        latest = max(latest, at)
        yield latest, mark


def _rest(usage: AttemptUsage, kept: _Kept) -> Part:
    """What comes after the last that an attempt told of."""
    if usage.end == "stalled":
        return "stalled"
    return kept.standing if kept.last or usage.end == "done" else "recomputed"


def _since(begin: datetime, moment: datetime) -> int:
    return (moment - begin) // MICROSECOND


def _least(one: int | None, other: int | None) -> int | None:
    known = [step for step in (one, other) if step is not None]
    return min(known, default=None)
