"""Replays the recorded decisions with another bound of one gate.

Values are as they were measured. A comparison with a champion that would not have been one cannot
be repeated from the ledger: it is used as recorded, and marked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10
from typing import Literal

from ml_assets.errors import UnknownGate, counted, did_you_mean
from ml_assets.records.ledger.stages import champion
from ml_assets.spec.gates import HIGHER_IS_BETTER, AgainstChampion, GateSpec, Target
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
        UnknownGate: no decision has such a gate with a value and a bound, or its values do not
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
        raise UnknownGate(
            f"No decision in the ledger has a gate {name!r} with a value and a bound. There are:"
            f" {', '.join(known) or 'none'}.{did_you_mean(name, known)}"
        )
    told = {_told(result) for result in results} - {None}
    if told == {"at least"}:
        return "at least"
    if told == {"at most"}:
        return "at most"
    raise UnknownGate(
        f"Gate {name!r} passed and failed on both sides of its bounds (it has two, or changed its"
        " meaning), or only at the bound itself: the effect of another bound cannot be computed."
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
        said.append("it was never in canary, and is assumed to pass there")
    return "; ".join(said)


def _by_override(entry: LedgerEntry, entries: Sequence[LedgerEntry]) -> bool:
    """A person let it through, whatever the gates said."""
    return any(e.seq == entry.decided_by and e.kind == "override" for e in entries)


IN_A_ROW = 3
"""Refusals by one margin after which it is looked at: of less, chance is as good a reason."""


@dataclass(frozen=True)
class Advice:
    """Holds what can be done about a gate against the champion that refused a model."""

    gate: str
    said: str


def what_now(
    entries: Sequence[LedgerEntry],
    stage: Target,
    gates: Sequence[GateSpec],
    results: Sequence[GateResult],
    pipeline: str,
) -> Advice | None:
    """Return what can be done about the newest refusal; None where the gates' reasons say it all.

    Args:
        results: what the gates said of the newest model.
    """
    stuck = refused_by_same_margin(entries, stage, gates, pipeline)
    return stuck or _too_few_rows(gates, results)


def _too_few_rows(gates: Sequence[GateSpec], results: Sequence[GateResult]) -> Advice | None:
    """The estimate keeps the bound, and its interval does not."""
    found = {result.name: result for result in results}
    for gate in gates:
        result = found.get(gate.name)
        if not isinstance(gate, AgainstChampion) or result is None or result.passed:
            continue
        if result.interval is None or result.bound is None:
            continue
        higher = gate.metric is not None and HIGHER_IS_BETTER[gate.metric]
        estimate, bound = result.interval.value, result.bound
        if estimate > bound if higher else estimate < bound:
            return Advice(
                gate.name,
                "the difference itself meets the bound, its interval does not: these rows are "
                "too few to decide. Hold out more of them (split.holdout), or declare a wider "
                "margin before the next model is judged. Until then the champion stays",
            )
    return None


def refused_by_same_margin(
    entries: Sequence[LedgerEntry], stage: Target, gates: Sequence[GateSpec], pipeline: str
) -> Advice | None:
    """The gate that refused the last models by the same margin; None where there is no such."""
    refused = _refused_last(entries)
    if len(refused) < IN_A_ROW:
        return None
    for name in (gate.name for gate in gates if isinstance(gate, AgainstChampion)):
        results = [_failed(decision, name) for decision in refused]
        known = [one for one in results if one is not None]
        bounds = {one.bound for one in known}
        if len(known) < len(refused) or len(bounds) > 1:
            continue
        said = _what_if(entries, stage, name, known, [d.evidence.model for d in refused], pipeline)
        return Advice(name, said) if said else None
    return None


def _refused_last(entries: Sequence[LedgerEntry]) -> list[Decision]:
    """The last decisions on ``IN_A_ROW`` models, newest first, if every one of them refused."""
    found: dict[str, Decision] = {}
    for entry in reversed(entries):
        decision = entry.decision
        if decision is None or decision.canary is not None:
            continue
        if decision.passed or len(found) == IN_A_ROW:
            break
        found.setdefault(decision.evidence.model, decision)
    return list(found.values())


def _failed(decision: Decision, name: str) -> GateResult | None:
    """The result of a gate that refused by its value."""
    found = next((one for one in decision.gates if one.name == name), None)
    if found is None or found.passed or found.value is None or found.bound is None:
        return None
    return found


def _what_if(
    entries: Sequence[LedgerEntry],
    stage: Target,
    gate: str,
    results: Sequence[GateResult],
    models: Sequence[str],
    pipeline: str,
) -> str:
    """What the ledger says of a bound that all of them keep; empty where it cannot tell."""
    bound = results[0].bound or 0.0
    values = [one.value for one in results if one.value is not None]
    furthest = _rounded_past(max(values, key=lambda value: abs(value - bound)), bound)
    try:
        replay = what_if(entries, stage, gate, furthest)
    except UnknownGate:  # its values do not tell on which side of the bound it passes
        return ""
    passing = {one.entry.model for one in replay.decisions if one.changed and one.passed}
    count = len(passing & set(models))
    other = "" if count == len(models) else f" {len(models) - count} failed other gates, too."
    return (
        f"it refused the last {counted(len(models), 'model')} by the same bound, {bound:g}. With"
        f" the bound {furthest:g}, {count} of them would have passed.{other} See what else that"
        f" changes: ml-assets release what-if {pipeline} --gate {gate} --bound {furthest:g}"
    )


def _rounded_past(value: float, bound: float) -> float:
    """Two digits of a number, away from a bound that it does not keep: it keeps those digits."""
    if value == 0:
        return 0.0
    scale = 10 ** (floor(log10(abs(value))) - 1)
    steps = ceil(value / scale) if value > bound else floor(value / scale)
    return float(f"{steps * scale:.2g}")
