"""The evidence about a model in canary: its predictions and the champion's on later rows."""

from collections.abc import Sequence
from pathlib import Path

from ml_assets.assets.evaluation_report.build_report import Holdout, judge
from ml_assets.assets.evaluation_report.evaluator import folder_size
from ml_assets.assets.evaluation_report.scoring import Scorer, Subject
from ml_assets.assets.evaluation_report.seed_spread import known_spread
from ml_assets.assets.released_model.gates.decide import policy_digest
from ml_assets.assets.training_set.shards import NotComparable
from ml_assets.errors import EvidenceError
from ml_assets.extras.canary.canary_report.rows import CanaryRows, Waiting, canary_rows
from ml_assets.graph.inputs import require_record
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.records.load_release import open_files
from ml_assets.records.recalls import sound_champion
from ml_assets.spec.gates import AgainstChampion
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import EvaluationReport, Evidence, LedgerEntry, Measured
from ml_assets.store.pipeline_context import Pipeline, PipelineState

CANARY_REPORT = "canary_report"


def require_rows(state: PipelineState) -> CanaryRows:
    """The rows that the model in canary is to be scored on.

    Raises:
        EvidenceError: no model is in canary, or its rows are not there yet.
    """
    model = champion(read(state.store, state.name, state.commit), "canary")
    if model is None:
        raise EvidenceError(
            f"{state.name} has no model in canary. One comes there when it passes its gates:"
            f" ml-assets run {state.name}"
        )
    rows = canary_rows(state, model)
    if isinstance(rows, Waiting):
        raise EvidenceError(f"{state.name}: {rows.reason}. Until then the model stays in canary.")
    return rows


def canary_gate(spec: PipelineSpec) -> AgainstChampion:
    """The champion gate that decides on a canary."""
    canary = spec.release.canary
    named = canary.gate if canary != "none" else ""
    gates = [g for g in spec.gates if isinstance(g, AgainstChampion) and g.name == named]
    return gates[0]  # the spec holds the name to the gates


def compare_on(
    pipeline: Pipeline,
    rows: CanaryRows,
    scorer: Scorer,
    rival: Subject | None,
) -> tuple[EvaluationReport, Measured]:
    """Judge the model in canary on the rows, beside the champion.

    Raises:
        EvidenceError: the features of now lack one that the model reads.
    """
    frame = rows.read(pipeline)
    digest = rows.model.model.data_version
    model = Subject.certified(pipeline, *open_files(pipeline.objects, pipeline.name, digest))
    scored = scorer.score(model, frame)
    if isinstance(scored, NotComparable):
        said = f"{pipeline.name}: the model in canary, {digest[:12]}, cannot be scored"
        raise EvidenceError(f"{said}: {scored.reason}. It stays there.")
    spec = pipeline.spec
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
        seeds=known_spread(pipeline.at(pipeline.store.resolve("main")))
        if canary_gate(spec).seeds
        else None,
    )
    return report, scored.measured()


def canary_evidence(state: PipelineState, entries: Sequence[LedgerEntry]) -> Evidence:
    """Return what a decision on the model in canary has to be about to count now.

    Raises:
        EvidenceError: no model is in canary, its rows are not there, or the report is of others.
    """
    rows = require_rows(state)
    record = require_record(state, state.address(CANARY_REPORT))
    model = rows.model.model
    about = {(i.key, i.partition, i.version) for i in record.inputs}
    missing = [i for i in rows.inputs if (i.key, i.partition, i.version) not in about]
    if missing:
        said = ", ".join(f"{i.key} {i.partition or ''} {i.version[:12]}" for i in missing)
        raise EvidenceError(
            f"{record.key} is about another model or other rows: {said} is not in it. Materialize"
            f" it and its check: ml-assets release promote {state.name}"
        )
    return Evidence(
        model=model.data_version,
        report=record.data_version,
        data=rows.digest,
        code=record.code_version,
        policy=policy_digest(state.spec.gates, state.spec.release),
        champion=sound_champion(
            state.store, state.commit, state.name, entries, state.spec.release.to
        ),
    )
