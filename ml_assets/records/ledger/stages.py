"""Queries on a ledger's lines: which model is in which stage, since when, by whose decision.

All are pure functions of the lines of one pipeline, oldest first.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import get_args

from ml_assets.errors import UnknownModel, counted
from ml_assets.spec.gates import Stage, Target
from ml_assets.spec.records import Decision, LedgerEntry
from ml_assets.spec.registered import Registered
from ml_assets.spec.split import HoldoutRows, HoldoutUse

ORDER: tuple[Target, ...] = get_args(Target)
"""The stages that hold a model, each with those before it on its way."""


def stages(entries: Sequence[LedgerEntry]) -> dict[Target, str]:
    """Stage -> digest of the model that is there.

    A model that moves on leaves the stages before. One line does both: there is no moment with
    two models in a stage, or in which the next one is not there yet. An abort empties the stages
    before the last.
    """
    found: dict[Target, str] = {}
    for entry in entries:
        left = ORDER[: ORDER.index(entry.stage)] if entry.stage else ()
        for before in ORDER[:-1] if entry.kind == "abort" else left:
            if found.get(before) == entry.model:
                del found[before]
        if entry.stage is not None:
            found[entry.stage] = entry.model
    return found


def champion(entries: Sequence[LedgerEntry], stage: Target = "production") -> str | None:
    """Digest of the model in a stage; None where there is none."""
    return stages(entries).get(stage)


def on_its_way(entries: Sequence[LedgerEntry]) -> list[str]:
    """The models in the stages before the last."""
    return [model for stage, model in stages(entries).items() if stage != ORDER[-1]]


def stage_of(entries: Sequence[LedgerEntry], model: str) -> Stage | None:
    """Return the furthest stage that a model is in; None: it never was in one."""
    there = stages(entries)
    for stage in reversed(ORDER):
        if there.get(stage) == model:
            return stage
    return "archived" if any(entry.model == model for entry in moves(entries)) else None


def moves(entries: Sequence[LedgerEntry], stage: Target | None = None) -> list[LedgerEntry]:
    """The moves of models, to any stage or to one."""
    return [e for e in entries if e.kind == "stage" and stage in (None, e.stage)]


def another_since(
    entries: Sequence[LedgerEntry], line: LedgerEntry, stage: Target | None = None
) -> LedgerEntry | None:
    """The first move of another model since a line, to any stage or to one."""
    later = (e for e in moves(entries, stage) if e.seq > line.seq and e.model != line.model)
    return next(later, None)


def left_by(entries: Sequence[LedgerEntry], move: LedgerEntry) -> LedgerEntry | None:
    """The line that took a model out of the stage of a move; None: it is there still."""
    if move.stage is None:
        return None
    later = [entry for entry in entries if entry.seq > move.seq]
    beyond = ORDER[ORDER.index(move.stage) + 1 :]
    for entry in later:
        gone = entry.stage in beyond or (entry.kind == "abort" and beyond)
        if entry.stage == move.stage or (gone and entry.model == move.model):
            return entry
    return None


def stage_line(entries: Sequence[LedgerEntry], stage: Target) -> LedgerEntry | None:
    """The move of the model that is in a stage; None where none is there."""
    line = next(iter(reversed(moves(entries, stage))), None)
    return line if line and champion(entries, stage) == line.model else None


def decided_move(
    entries: Sequence[LedgerEntry], model: str, stage: Target | None = None
) -> LedgerEntry | None:
    """The newest move of a model by a decision or an override, to any stage or to one: what a
    rollback goes back to."""
    found = (e for e in reversed(moves(entries, stage)) if e.model == model and e.because is None)
    return next(found, None)


def latest_decision(entries: Sequence[LedgerEntry], model: str) -> Decision | None:
    """The newest decision of the gates on a model: the only one that counts."""
    line = decision_line(entries, model)
    return line.decision if line else None


def decision_line(
    entries: Sequence[LedgerEntry], model: str, *, canary: bool = False
) -> LedgerEntry | None:
    """The line that holds the newest decision on a model: of the gates, or on it as a canary."""

    def wanted(entry: LedgerEntry) -> bool:
        if entry.model != model or entry.decision is None:
            return False
        return (entry.decision.canary is not None) == canary

    return next(filter(wanted, reversed(entries)), None)


def override_line(entries: Sequence[LedgerEntry], decision: LedgerEntry) -> LedgerEntry | None:
    """The newest override of exactly this decision."""

    def wanted(entry: LedgerEntry) -> bool:
        return entry.overrides == decision.seq and entry.model == decision.model

    return next(filter(wanted, reversed(entries)), None)


def standing_override(entries: Sequence[LedgerEntry], model: str) -> LedgerEntry | None:
    """The override that a model stands by: of the newest decision on it; None where that passed."""
    line = decision_line(entries, model)
    refused = line is not None and line.decision is not None and not line.decision.passed
    return override_line(entries, line) if line and refused else None


def standing_refusal(entries: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """The newest decision, where it refused its model and nobody answers for it."""
    line = next((entry for entry in reversed(entries) if entry.decision is not None), None)
    if line is None or line.decision is None or line.decision.passed:
        return None
    return None if override_line(entries, line) else line


def put_out_line(entries: Sequence[LedgerEntry], model: str) -> LedgerEntry | None:
    """The rollback or the abort that took a model out of its stage, where nobody has put it back
    since.

    Its decision may still fit all evidence, for the champion is again the one that it was compared
    with; a person's word, or what traffic showed, has come in between.
    """
    for entry in reversed(entries):
        if entry.kind == "abort" and entry.model == model:
            return entry
        if entry.kind == "stage" and entry.model == model:
            return None
        if entry.because == "rollback" and entry.replaced == model:
            return entry
    return None


def registration(entries: Sequence[LedgerEntry], model: str) -> Registered | None:
    """Return what was said of a model that was made elsewhere; None: it was trained here."""
    first = next((entry for entry in entries if entry.model == model), None)
    return first.registered if first else None


def standing_abort(entries: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """The newest abort, where no other model came to canary since."""
    for entry in reversed(entries):
        if entry.kind == "abort":
            return entry
        if entry.stage == "canary":
            return None
    return None


SHORTEST = 6
"""Characters of a digest that may name a model."""


def find_model(entries: Sequence[LedgerEntry], beginning: str) -> str:
    """The digest of the one model in a ledger that begins so.

    Raises:
        UnknownModel: none does, or several do, or it is shorter than six characters.
    """
    known = dict.fromkeys(entry.model for entry in reversed(entries))
    if len(beginning) < SHORTEST:
        raise UnknownModel(
            f"{beginning!r} is too short to name a model: give {SHORTEST} characters of its digest"
            " or more."
        )
    found = [model for model in known if model.startswith(beginning)]
    if len(found) == 1:
        return found[0]
    if found:
        said = ", ".join(model[:16] for model in found)
        raise UnknownModel(
            f"{beginning!r} begins {counted(len(found), 'model')}: {said}. Give more of it."
        )
    said = ", ".join(model[:12] for model in list(known)[:10]) or "none"
    raise UnknownModel(f"The ledger tells of no model {beginning[:80]!r}; newest first: {said}.")


def serving_at(
    entries: Sequence[LedgerEntry], time: datetime, stage: Target = "production"
) -> LedgerEntry | None:
    """The move by which a model was in a stage at a time; None before the first one."""
    then = [entry for entry in entries if entry.time <= time]
    return stage_line(then, stage)


def holdout_use(entries: Sequence[LedgerEntry], model: str, rows: HoldoutRows) -> HoldoutUse:
    """The other models that were decided on with rows of this holdout, before this one was.

    A refusal counts as a release does: both tell whoever tries again. Windows that share a
    partition share rows, and a canary was looked at on the rows of its period; of holdouts that
    are not cut in time, samples are compared. A report that no gate judged is not in the ledger and
    not counted.

    Args:
        entries: the ledger of the pipeline, oldest first.
    """
    sharing: set[str] = set()
    unknown: set[str] = set()
    for entry in entries:
        decision = entry.decision
        if decision is None:
            continue
        if entry.model == model:
            break
        shared = _share(decision, rows)
        if shared is None:
            unknown.add(entry.model)
        elif shared:
            sharing.add(entry.model)
    return HoldoutUse(models=len(sharing), unknown=len(unknown - sharing))


def _share(decision: Decision, rows: HoldoutRows) -> bool | None:
    """Whether a decision rests on some of the rows; None where nobody can tell, as of a holdout of
    another kind."""
    if decision.holdout is not None and decision.holdout.digest == rows.digest:
        return True
    theirs = decision.holdout.draw if decision.holdout else None
    if theirs and rows.draw:
        return not set(theirs.sample).isdisjoint(rows.draw.sample)
    seen = decision.canary or decision.holdout
    if seen is None or not (seen.first and rows.first):
        return None
    return seen.first <= rows.last and rows.first <= seen.last
