"""Models that the champion's margin refused in a row: what another margin would have done."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

from ml_assets.errors import EvidenceError
from ml_assets.records.ledger.replay import what_if
from ml_assets.spec.gates import AgainstChampion, GateSpec, Target
from ml_assets.spec.records import Decision, GateResult, LedgerEntry

IN_A_ROW = 3
"""Refusals by one margin after which it is looked at: of less, chance is as good a reason."""


@dataclass(frozen=True)
class SameMargin:
    """The last models were all refused by one gate, held to one bound."""

    gate: str
    said: str
    """What `release what-if` says of the smallest bound that would have let one through, and of
    the one that would have let all of them through."""


def refused_by_same_margin(
    entries: Sequence[LedgerEntry], stage: Target, gates: Sequence[GateSpec], pipeline: str
) -> SameMargin | None:
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
        return SameMargin(name, said) if said else None
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
    furthest = _outward(max(values, key=lambda value: abs(value - bound)))
    try:
        replay = what_if(entries, stage, gate, furthest)
    except EvidenceError:  # its values do not tell on which side of the bound it passes
        return ""
    passing = {one.entry.model for one in replay.decisions if one.changed and one.passed}
    count = len(passing & set(models))
    other = "" if count == len(models) else f" {len(models) - count} failed other gates, too."
    return (
        f"it refused the last {len(models)} models by the same bound, {bound:g}. Held to"
        f" {furthest:g}, {count} of them would have passed.{other} See what else that changes:"
        f" ml-assets release what-if {pipeline} --gate {gate} --bound {furthest:g}"
    )


def _outward(value: float) -> float:
    """Two digits of a number, away from zero."""
    if value == 0:
        return 0.0
    scale = 10 ** (floor(log10(abs(value))) - 1)
    steps = -(-abs(value) // scale)
    return float(f"{(steps if value > 0 else -steps) * scale:.2g}")
