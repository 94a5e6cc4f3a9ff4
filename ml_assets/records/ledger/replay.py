"""What would have happened: the recorded decisions again, one gate held to another bound.

Values are as they were measured. A comparison with a champion that would not have been one cannot
be repeated from the ledger: it is taken as it was, and said to be.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ml_assets.errors import EvidenceError
from ml_assets.records.ledger.stages import champion
from ml_assets.spec.gates import Target
from ml_assets.spec.records import Decision, GateResult, LedgerEntry


@dataclass(frozen=True)
class Replayed:
    """One decision, as it was and as it would have been."""

    entry: LedgerEntry
    passed: bool
    """What would have been decided."""
    champion: str | None
    """Who would have been in the stage after it."""
    note: str
    """What could not be repeated; empty where all could."""

    @property
    def changed(self) -> bool:
        return self.entry.decision is not None and self.entry.decision.passed != self.passed


@dataclass(frozen=True)
class Replay:
    """The story with another bound."""

    decisions: tuple[Replayed, ...]
    champion: str | None
    """Who would be in the stage now."""
    is_champion: str | None
    """Who is."""


Side = Literal["at least", "at most"]


def what_if(entries: Sequence[LedgerEntry], stage: Target, gate: str, bound: float) -> Replay:
    """Hold a gate's recorded values to another bound.

    A model that would have passed is taken to be released at once; one that passed in truth is
    released where it was. Rollbacks and overrides are people's: they stay, where they still lead
    somewhere.

    Raises:
        EvidenceError: no decision has such a gate with a value and a bound, or its values do not
            tell on which side of the bound it passes.
    """
    side = _side(entries, gate)
    there: str | None = None
    passing: set[str] = set()
    been: set[str] = set()
    found: list[Replayed] = []
    for entry in entries:
        decision = entry.decision
        if decision is not None and decision.canary is None:
            passes = _passes(decision, gate, bound, side)
            note = _note(entries, entry, passes, there)
            passing = passing | {entry.model} if passes else passing - {entry.model}
            if passes and not decision.passed:
                there = entry.model
            found.append(Replayed(entry, passes, there, note))
        elif entry.stage == stage:
            known = been if entry.because else passing
            if entry.model in known or _by_override(entry, entries):
                there = entry.model
                found[-1:] = [replace(one, champion=there) for one in found[-1:]]
        been |= {there} if there else set()
    return Replay(tuple(found), there, champion(entries, stage))


def _side(entries: Sequence[LedgerEntry], name: str) -> Side:
    """On which side of its bound a gate passes, by what it decided; its spec may have changed."""
    decisions = [entry.decision for entry in entries if entry.decision is not None]
    results = [g for d in decisions for g in d.gates if g.name == name and _is_measured(g)]
    if not results:
        known = sorted({g.name for d in decisions for g in d.gates if _is_measured(g)})
        raise EvidenceError(
            f"No decision in the ledger has a gate {name!r} with a value and a bound. There are:"
            f" {', '.join(known) or 'none'}."
        )
    told = {_told(result) for result in results} - {None}
    if told == {"at least"}:
        return "at least"
    if told == {"at most"}:
        return "at most"
    raise EvidenceError(
        f"Gate {name!r} passed and failed on both sides of its bounds (it has two, or changed its"
        " meaning), or only at the bound itself: what another bound would do cannot be told."
    )


def _told(result: GateResult) -> Side | None:
    if result.value is None or result.bound is None or result.value == result.bound:
        return None
    return "at least" if (result.value > result.bound) == result.passed else "at most"


def _is_measured(result: GateResult) -> bool:
    return result.value is not None and result.bound is not None


def _passes(decision: Decision, name: str, bound: float, side: Side) -> bool:
    """Whether every gate passes; one without a value decided by another rule, and stays."""

    def fine(result: GateResult) -> bool:
        if result.name != name or result.value is None:
            return result.passed
        return result.value >= bound if side == "at least" else result.value <= bound

    return bool(decision.gates) and all(fine(result) for result in decision.gates)


def _note(
    entries: Sequence[LedgerEntry], entry: LedgerEntry, passes: bool, there: str | None
) -> str:
    """What of a decision the ledger cannot answer."""
    said: list[str] = []
    rival = entry.decision.evidence.champion if entry.decision else None
    if rival not in (there, entry.model):
        was, then = rival[:12] if rival else "no champion", there[:12] if there else "none"
        said.append(f"it was compared with {was}, the champion would have been {then}")
    judged = any(e.model == entry.model and e.decision and e.decision.canary for e in entries)
    canaries = any(e.decision and e.decision.canary for e in entries)
    if canaries and not judged and passes and entry.decision and not entry.decision.passed:
        said.append("it never was a canary, which is taken to pass")
    return "; ".join(said)


def _by_override(entry: LedgerEntry, entries: Sequence[LedgerEntry]) -> bool:
    """A person let it through, whatever the gates said."""
    return any(e.seq == entry.decided_by and e.kind == "override" for e in entries)
