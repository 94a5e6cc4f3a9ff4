"""What speaks for a model in canary: its predictions and the champion's on rows that came later."""

from collections.abc import Sequence
from pathlib import Path

from ml_assets.assets.canary_report.rows import CanaryRows, Waiting, canary_rows
from ml_assets.assets.evaluation_report.asset import folder_size
from ml_assets.assets.evaluation_report.judge import Holdout, judge
from ml_assets.assets.evaluation_report.scoring import Scorer, Subject
from ml_assets.assets.evaluation_report.seed_spread import known_spread
from ml_assets.assets.released_model.gates.decide import policy_digest
from ml_assets.assets.training_set.shards import NotComparable
from ml_assets.errors import EvidenceError
from ml_assets.graph.inputs import require_record
from ml_assets.graph.pipeline_graph import PipelineGraph
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.records.loading import open_files
from ml_assets.records.recalls import sound_champion
from ml_assets.spec.gates import AgainstChampion
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import EvaluationReport, Evidence, LedgerEntry, Measured
from ml_assets.store.layout import Address
from ml_assets.store.snapshots import CommitId, SnapshotStore

CANARY_REPORT = "canary_report"


def require_rows(graph: PipelineGraph, store: SnapshotStore, base: CommitId) -> CanaryRows:
    """The rows that the model in canary is to be scored on.

    Raises:
        EvidenceError: no model is in canary, or its rows are not there yet.
    """
    model = champion(read(store, graph.name, base), "canary")
    if model is None:
        raise EvidenceError(
            f"{graph.name} has no model in canary. One comes there when it passes its gates:"
            f" ml-assets run {graph.name}"
        )
    rows = canary_rows(graph, store, base, model)
    if isinstance(rows, Waiting):
        raise EvidenceError(f"{graph.name}: {rows.reason}. Until then it stays there.")
    return rows


def canary_gate(spec: PipelineSpec) -> AgainstChampion:
    """The champion gate that decides on a canary."""
    canary = spec.release.canary
    named = canary.gate if canary != "none" else ""
    gates = [g for g in spec.gates if isinstance(g, AgainstChampion) and g.name == named]
    return gates[0]  # the spec holds the name to the gates


def compare_on(
    graph: PipelineGraph,
    store: SnapshotStore,
    rows: CanaryRows,
    scorer: Scorer,
    rival: Subject | None,
) -> tuple[EvaluationReport, Measured]:
    """Judge the model in canary on the rows, beside the champion.

    Raises:
        EvidenceError: the features of now lack one that the model reads.
    """
    frame = rows.read(graph, store)
    digest = rows.model.model.data_version
    model = Subject(*open_files(scorer.objects, graph.name, digest))
    scored = scorer.score(model, frame)
    if isinstance(scored, NotComparable):
        said = f"{graph.name}: the model in canary, {digest[:12]}, cannot be scored"
        raise EvidenceError(f"{said}: {scored.reason}. It stays there.")
    spec = graph.spec
    asked = spec.model_copy(
        update={
            "gates": (canary_gate(spec),),
            "evaluation": spec.evaluation.model_copy(
                update={"simple_model": None, "baselines": ()}
            ),
        }
    )
    report = judge(
        asked,
        model=digest,
        data=rows.digest,
        holdout=Holdout.of(spec, frame, rows.span),
        predictions=scored.predictions,
        baselines={},
        champion=scorer.champion(rival, frame) if rival else None,
        size_bytes=folder_size(Path(model.ref.uri)),
        seeds=known_spread(store, store.resolve("main"), graph)
        if canary_gate(spec).seeds
        else None,
    )
    return report, scored.measured()


def canary_evidence(
    graph: PipelineGraph, store: SnapshotStore, base: CommitId, entries: Sequence[LedgerEntry]
) -> Evidence:
    """What a decision on the model in canary has to be about to count now.

    Raises:
        EvidenceError: no model is in canary, its rows are not there, or the report is of others.
    """
    rows = require_rows(graph, store, base)
    record = require_record(store, base, Address(graph.name, CANARY_REPORT))
    model = rows.model.model
    about = {(i.key, i.partition, i.version) for i in record.inputs}
    missing = [i for i in rows.inputs if (i.key, i.partition, i.version) not in about]
    if missing:
        said = ", ".join(f"{i.key} {i.partition or ''} {i.version[:12]}" for i in missing)
        raise EvidenceError(
            f"{record.key} is about another model or other rows: {said} is not in it. Materialize"
            f" it and its check: ml-assets release promote {graph.name}"
        )
    return Evidence(
        model=model.data_version,
        report=record.data_version,
        data=rows.digest,
        code=record.code_version,
        policy=policy_digest(graph.spec.gates, graph.spec.release),
        champion=sound_champion(store, base, graph.name, entries, graph.spec.release.to),
    )
