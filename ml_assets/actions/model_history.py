"""Reads from the ledger what happened to a pipeline's models, or which one served at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ml_assets.errors import NothingReleased
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import left_by, moves, serving_at, stages
from ml_assets.records.recalls import recalled
from ml_assets.reports.decisions import gates_moved
from ml_assets.reports.wording import happened
from ml_assets.spec.records import GateResult, LedgerEntry
from ml_assets.store.pipeline_context import Pipeline

SCHEMA = 1


@dataclass(frozen=True)
class Happened:
    """One line of the ledger, as a person reads it."""

    entry: LedgerEntry
    what: str
    """``passed``, ``refused``, the stage that the model went to, ..."""
    metric: str
    """The leading gate's value, such as ``auc 0.7430``; empty for a move."""
    gates_moved: str = ""
    """How the gates differ from those of the decision before on the same model."""


def history(pipeline: Pipeline) -> tuple[Happened, ...]:
    """All that happened to the models of a pipeline, newest first.

    Raises:
        StorageError: the ledger is broken.
    """
    metrics = {gate.name: getattr(gate, "metric", gate.name) for gate in pipeline.spec.gates}
    entries = read(pipeline.store, pipeline.name)
    return tuple(_happened(entry, metrics, entries) for entry in reversed(entries))


def document(pipeline: Pipeline) -> dict[str, Any]:
    """The whole history as one JSON document."""
    lines = [
        {
            "what": one.what,
            "metric": one.metric,
            "gates_moved": one.gates_moved,
            **one.entry.model_dump(mode="json"),
        }
        for one in history(pipeline)
    ]
    now = stages(read(pipeline.store, pipeline.name))
    bad = {stage: said for stage, model in now.items() if (said := recall_of(pipeline, model))}
    return {
        "schema": SCHEMA,
        "pipeline": pipeline.name,
        "stages": now,
        "recalled": bad,
        "history": lines,
    }


def recall_of(pipeline: Pipeline, model: str) -> str | None:
    """The id and the reason of the recall that reached a model; None where it may be used."""
    store = pipeline.store
    found = recalled(store, store.resolve(), pipeline.name, model)
    return found.told if found else None


@dataclass(frozen=True)
class Serving:
    """A model that was in the stage of a pipeline at a time."""

    at: datetime
    entry: LedgerEntry
    """The move that had put it there."""
    until: LedgerEntry | None
    """The line that took it out again; None: it is there still."""
    recalled: str | None
    """The recall that reached it, at whatever time: its id and its reason."""


def was_serving(pipeline: Pipeline, at: datetime) -> Serving:
    """Return which model was in the stage that a pipeline releases to.

    Raises:
        NothingReleased: none was, at that time.
        StorageError: the ledger is broken.
    """
    stage = pipeline.spec.release.to
    entries = read(pipeline.store, pipeline.name)
    moved = moves(entries, stage)
    entry = serving_at(entries, at, stage)
    if entry is None:
        said = "none ever was" if not moved else f"the first came on {moved[0].time:{_TIME}}"
        raise NothingReleased(f"{pipeline.name} had no model in {stage} on {at:{_TIME}}: {said}.")
    return Serving(at, entry, left_by(entries, entry), recall_of(pipeline, entry.model))


_TIME = "%Y-%m-%d %H:%M:%S %Z"


def _happened(
    entry: LedgerEntry, metrics: dict[str, str | None], entries: Sequence[LedgerEntry]
) -> Happened:
    measured = _leading(entry.decision.gates, metrics) if entry.decision else ""
    return Happened(entry, happened(entry), measured, gates_moved(entries, entry))


def _leading(gates: tuple[GateResult, ...], metrics: dict[str, str | None]) -> str:
    """The first gate's that measured something: teams write the one that matters first."""
    measured = next((gate for gate in gates if gate.value is not None), None)
    if measured is None or measured.value is None:
        return ""
    return f"{metrics.get(measured.name) or measured.name} {measured.value:.4f}"
