"""Checks that a ledger is consistent: one champion at every moment, each by a decision or a person.

The chain is verified whenever the lines are read; this module is about their content. It decides
nothing: it finds what ``promote`` and ``rollback`` should never have written.
"""

from collections.abc import Iterator, Sequence

from ml_assets.records.ledger.stages import (
    decided_move,
    decision_line,
    on_its_way,
    override_line,
    stages,
)
from ml_assets.spec.records import LedgerEntry


def problems(entries: Sequence[LedgerEntry]) -> tuple[str, ...]:
    """Return what cannot have happened, line by line; empty where all could.

    Args:
        entries: all lines of a pipeline, oldest first.
    """
    found: list[str] = []
    for place, entry in enumerate(entries):
        before = entries[:place]
        said = [
            *_number(entry, place),
            *_move(entry, before),
            *_abort(entry, before),
            *_override(entry, before),
        ]
        found += [f"line {entry.seq}: {one}" for one in said]
    return tuple(found)


def _number(entry: LedgerEntry, place: int) -> Iterator[str]:
    if entry.seq != place + 1:
        yield f"it is line number {place + 1}: a line is missing, or there twice"


def _move(entry: LedgerEntry, before: Sequence[LedgerEntry]) -> Iterator[str]:
    """A move begins where the one before had ended: no second champion, and none in between."""
    if entry.stage is None:
        return
    there = stages(before).get(entry.stage)
    if there == entry.model:
        yield f"model {_short(entry.model)} is moved to {entry.stage}, where it was already"
    if entry.replaced != there:
        yield f"it replaces {_short(entry.replaced)} in {entry.stage}, where {_short(there)} was"
    if entry.because == "rollback":
        yield from _return(entry, before)
    else:
        yield from _evidence(entry, before)


def _return(entry: LedgerEntry, before: Sequence[LedgerEntry]) -> Iterator[str]:
    """A recall before it says nothing: made again from sound data a model may be used, and no line
    tells of that."""
    if decided_move(before, entry.model, entry.stage) is None:
        yield f"it goes back to {_short(entry.model)}, which never was released to {entry.stage}"


def _evidence(entry: LedgerEntry, before: Sequence[LedgerEntry]) -> Iterator[str]:
    """The newest decision at that time let it through, or an override of exactly that one."""
    lines = [decision_line(before, entry.model, canary=canary) for canary in (False, True)]
    known = [line for line in lines if line is not None and line.decision is not None]
    if not known:
        yield f"no decision on model {_short(entry.model)} comes before it"
        return
    newest = max(known, key=lambda line: line.seq)
    override = override_line(before, newest)
    if newest.decision and not newest.decision.passed and override is None:
        yield f"the decision in line {newest.seq} refused model {_short(entry.model)}"
    if entry.decided_by is not None:  # lines from before overrides do not say it
        refused = newest.decision is not None and not newest.decision.passed
        by = override.seq if refused and override else newest.seq
        if entry.decided_by != by:
            yield f"it names decision line {entry.decided_by}; the valid one then was line {by}"
    there = stages(before)
    rivals = [there.get(entry.stage)] if entry.stage else []
    if entry.stage == "canary":  # on its way to production: compared with the model there
        rivals.append(there.get("production"))
    last = rivals[-1] if rivals else None
    if _is_recalled(before, last):
        rivals.append(None)  # what may not be used is no champion
    if newest.decision and newest.decision.evidence.champion not in rivals:
        was = _short(newest.decision.evidence.champion)
        yield f"its decision compares with {was}, but {_short(last)} was the champion"


def _is_recalled(before: Sequence[LedgerEntry], model: str | None) -> bool:
    """Whether a recall of the model holds: each is lifted by itself."""
    holding: set[str] = set()
    for entry in before:
        if entry.model == model and entry.kind in ("recall", "lift"):
            name = entry.reason.partition(":")[0].removesuffix(" lifted")
            holding = holding | {name} if entry.kind == "recall" else holding - {name}
    return bool(holding)


def _abort(entry: LedgerEntry, before: Sequence[LedgerEntry]) -> Iterator[str]:
    if entry.kind == "abort" and entry.model not in on_its_way(before):
        yield f"it aborts {_short(entry.model)}, which was in neither staging nor canary"


def _override(entry: LedgerEntry, before: Sequence[LedgerEntry]) -> Iterator[str]:
    if entry.overrides is None:
        return
    about = next((e for e in before if e.seq == entry.overrides), None)
    if about is None or about.decision is None or about.model != entry.model:
        yield f"line {entry.overrides}, which it overrides, is not an earlier decision on its model"
    elif about.decision.passed:
        yield f"line {entry.overrides}, which it overrides, had let the model pass"


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "no model"
