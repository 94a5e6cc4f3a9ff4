"""Keeps what each attempt used beside its events, and reads it again; the events themselves tell
what was not kept."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from pydantic import ValidationError

from ml_assets.launch.events import EventReader, attempt_numbers
from ml_assets.launch.failure import Ending
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.settings import PriceClass
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import Request, TrainRequest, TrainResult
from ml_assets.spec.training_program.events import (
    Checkpoint,
    Event,
    Finished,
    FirstRows,
    Metrics,
    Progress,
)
from ml_assets.spec.training_program.exit_codes import EXIT_PEER_SILENT
from ml_assets.spec.training_program.pod import REQUESTS
from ml_assets.spec.usage import AttemptEnd, AttemptUsage, Held, Mark
from ml_assets.store.objects import write_whole

USAGE_FILE = "usage.json"
MOST_MARKS = 200
"""Marks of one attempt: days of steps are told every ten seconds."""
_ON_A_GPU = "gpu_memory_peak_mb"
"""Told only where the network lies on a GPU."""
_WAITED = "data_wait_share"
_FETCHED = "fetched_mb"
_MILLISECOND = timedelta(milliseconds=1)
_SAME_WORD = 1000
"""Milliseconds: a step that is told twice within them is told once."""


def held_here(request: Request, began: datetime, ended: datetime, events: Sequence[Event]) -> Held:
    """This machine, held for an attempt from its beginning to its end."""
    on_gpu = any(_ON_A_GPU in e.metrics for e in events if isinstance(e, Metrics))
    spot = isinstance(request, TrainRequest) and request.training.spot is not None
    price_class: PriceClass = "spot" if spot else "on-demand"
    return Held(
        nodes=request.world.nodes,
        gpus_per_node=request.world.procs if on_gpu else 0,
        price_class=price_class,
        created=began,
        scheduled=began,
        started=began,
        ended=max(began, ended),
    )


def usage_of(
    pipeline: str, request: Request, held: Held, end: AttemptEnd, events: Sequence[Event]
) -> AttemptUsage:
    """The record of an attempt, from what it was asked, held and told."""
    finished = (e.result for e in events if isinstance(e, Finished))
    result = next((r for r in finished if isinstance(r, TrainResult)), None)
    trains = isinstance(request, TrainRequest)
    saved = [e for e in events if isinstance(e, Checkpoint)]
    return AttemptUsage(
        pipeline=pipeline,
        session=request.session,
        attempt=request.attempt,
        verb=request.verb,
        held=held,
        end=end,
        steps=max((e.steps for e in events if isinstance(e, Progress)), default=None),
        marks=tuple(thinned(marks_of(events, held.created))) if trains else (),
        checkpoint_bytes=sum(e.size for e in saved),
        checkpoint_bytes_sent=sum(e.size for e in saved if e.checkpoint.uri.startswith("s3://")),
        fetched_bytes=_fetched(events),
        model=result.model.digest if result and end == "done" else None,
    )


def _fetched(events: Sequence[Event]) -> int:
    """As the last evaluation told it, of all processes together."""
    told = [e.metrics.get(_FETCHED) for e in events if isinstance(e, Metrics)]
    return int(1e6 * next((mb for mb in reversed(told) if mb is not None), 0.0))


def end_of(ending: Ending) -> AttemptEnd:
    """Return how an attempt without a result ended, for who counts its time."""
    if ending.code == EXIT_PEER_SILENT:
        return "stalled"
    match ending.then:
        case "interrupted":
            return "stopped"
        case "unstarted" | "no_room":
            return "unstarted"
        case "lost":
            return "lost"
        case "stop" | "again":
            return "lost" if ending.code < 0 else "failed"


def keep_usage(folder: SessionFolder, usage: AttemptUsage) -> None:
    """Write an attempt's ``usage.json``, whole or not at all.

    Where it cannot be written nothing is lost: the events tell nearly the same.
    """
    with suppress(OSError):
        write_whole(folder.attempt(usage.attempt) / USAGE_FILE, canonical_json(usage))


def session_usages(folder: SessionFolder, *, outlived: bool = False) -> list[AttemptUsage]:
    """Return what the ended attempts of a session used, oldest first.

    Args:
        outlived: the last attempt may go on though nobody watches it, as a Job of a cluster does.
    """
    with folder.idle() as idle:
        numbers = attempt_numbers(folder.root)
        found = [_kept(folder, number) for number in numbers]
        # whoever watched it died: what it told is all there is
        over = numbers if idle and not outlived else numbers[:-1]
        untold = [n for n, usage in zip(numbers, found, strict=True) if usage is None and n in over]
        told = [usage for number in untold if (usage := _from_events(folder, number)) is not None]
    whole = [usage for usage in found if usage is not None]
    return sorted([*whole, *told], key=lambda usage: usage.attempt)


def marks_of(events: Sequence[Event], created: datetime) -> Iterator[Mark]:
    """Yield where an attempt was, each time that it said so."""
    before: tuple[int, int] | None = None
    for event in events:
        if isinstance(event, FirstRows):
            step, waited = 0, 0.0
        elif isinstance(event, Metrics):
            step, waited = event.step, min(1.0, max(0.0, event.metrics.get(_WAITED, 0.0)))
        elif isinstance(event, Progress):
            step, waited = event.step, 0.0
        else:
            continue
        after = max(0, (event.time - created) // _MILLISECOND)
        if before and before[1] == step and after - before[0] < _SAME_WORD:
            continue
        before = (after, step)
        yield Mark(after=after, step=step, waited=waited)


def thinned(marks: Iterator[Mark]) -> list[Mark]:
    """Thin samples out so that a record stays small; where steps go back they stay."""
    found = list(marks)
    every = -(-len(found) // MOST_MARKS)
    if every <= 1:
        return found
    turns = {0, len(found) - 1}
    for place, (one, other) in enumerate(pairwise(found)):
        if other.step <= one.step:
            turns |= {place, place + 1}
    kept, since, waited = [found[0]], found[0].after, 0.0
    for place, (one, mark) in enumerate(pairwise(found), 1):
        waited += mark.waited * (mark.after - one.after)
        if place in turns or place % every == 0:
            share = waited / (mark.after - since) if mark.after > since else 0.0
            kept.append(mark.model_copy(update={"waited": min(1.0, max(0.0, share))}))
            since, waited = mark.after, 0.0
    return kept


def _kept(folder: SessionFolder, number: int) -> AttemptUsage | None:
    try:
        content = (folder.attempt(number) / USAGE_FILE).read_bytes()
        return AttemptUsage.model_validate_json(content)
    except (OSError, ValidationError):
        return None


def _from_events(folder: SessionFolder, number: int) -> AttemptUsage | None:
    """The usage of an attempt that nobody saw end: from its request to the last that it told of."""
    file = folder.request(number)
    try:
        request, asked = REQUESTS.validate_json(file.read_bytes()), _written(file)
    except (OSError, ValidationError):
        return None
    events = list(EventReader(folder.attempt(number)).new())
    times = [event.time for event in events]
    began = min([asked, *times])
    held = held_here(request, began, max(times, default=began), events)
    pipeline = folder.session.rsplit("-", 2)[0]
    end: AttemptEnd = "done" if folder.result(number).is_file() else "lost"
    return usage_of(pipeline, request, held, end, events)


def _written(file: Path) -> datetime:
    return datetime.fromtimestamp(file.stat().st_mtime, UTC)
