"""What was decided about a pipeline's models, from its ledger: newest first."""

from dataclasses import dataclass
from typing import Any

from ml_assets.operations.workplace import Workplace
from ml_assets.registry.ledger import read
from ml_assets.spec.records import GateResult, LedgerEntry

SCHEMA = 1


@dataclass(frozen=True)
class Happened:
    """One line of the ledger, as a person reads it."""

    entry: LedgerEntry
    what: str
    """``passed``, ``refused``, or the stage that the model went to."""
    metric: str
    """The leading gate's value, such as ``auc 0.7430``; empty for a move."""


def history(place: Workplace) -> tuple[Happened, ...]:
    """Decisions, refusals and moves of a pipeline, newest first.

    Raises:
        StorageError: the ledger is broken.
    """
    metrics = {gate.name: getattr(gate, "metric", gate.name) for gate in place.spec.gates}
    return tuple(_happened(e, metrics) for e in reversed(read(place.store, place.name)))


def document(place: Workplace) -> dict[str, Any]:
    """The same as one JSON document, nothing left out."""
    lines = [
        {"what": one.what, "metric": one.metric, **one.entry.model_dump(mode="json")}
        for one in history(place)
    ]
    return {"schema": SCHEMA, "pipeline": place.name, "history": lines}


def _happened(entry: LedgerEntry, metrics: dict[str, str]) -> Happened:
    decision = entry.decision
    if entry.kind == "recall":
        return Happened(entry, "recall", "")
    if decision is None:
        return Happened(entry, f"to {entry.stage}", "")
    what = "passed" if decision.passed else "refused"
    return Happened(entry, what, _leading(decision.gates, metrics))


def _leading(gates: tuple[GateResult, ...], metrics: dict[str, str]) -> str:
    """The first gate's that measured something: teams write the one that matters first."""
    measured = next((gate for gate in gates if gate.value is not None), None)
    if measured is None or measured.value is None:
        return ""
    return f"{metrics.get(measured.name, measured.name)} {measured.value:.4f}"
