"""Moves a model version to a stage, if the evidence allows it, through the existing doors.

A version that was there before comes back by a rollback. The pipeline's own asset releases a new
one, in a Dagster run that checks everything; what it would refuse is reported at once.
"""

from collections.abc import Sequence

from ml_assets.actions.rollback import roll_back
from ml_assets.adapters.runs import TRIGGER_TAG
from ml_assets.adapters.served_dagster import launch
from ml_assets.assets.released_model.abort import abort
from ml_assets.assets.released_model.current_evidence import evidence_to_release
from ml_assets.assets.released_model.promote import Refused, certified, verify
from ml_assets.assets.released_model.rollback import Asked
from ml_assets.errors import EvidenceError, one_line
from ml_assets.extras.api.shapes import StageMoved, StageRequest
from ml_assets.records.ledger.chain import read_head
from ml_assets.records.ledger.stages import decided_move, find_model, stage_line, stage_of
from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.records.tracking.projection import project_stages
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.pipeline_context import Pipeline

ASKED_BY = "ml_assets/asked_by"
"""Tag of a run: who asked for it through the API."""


def move(pipeline: Pipeline, version: str, asked: StageRequest, author: str) -> StageMoved:
    """Move a version to a stage, or ask Dagster for the run that does.

    Raises:
        UnknownModel: the ledger tells of no such version, or of several.
        EvidenceError: the evidence does not allow it; every reason is given.
        DagsterAway: its run could not be launched.
    """
    head = read_head(pipeline.store, pipeline.name, pipeline.store.resolve())
    model = find_model(head.entries, version)
    told = StageMoved(name=pipeline.name, version=model, stage=asked.stage, status="being released")
    if asked.stage == "archived":
        return _archive(pipeline, told, head.entries, Asked(author, asked.reason, model))
    there = stage_line(head.entries, asked.stage)
    if there is not None and there.model == model:
        return told.model_copy(update={"status": "there already", "ledger_line": there.seq})
    _require_a_way(pipeline, model, asked.stage, head.entries)
    if asked.stage == pipeline.spec.release.to and decided_move(head.entries, model, asked.stage):
        returned = roll_back(
            pipeline.name, Asked(author, asked.reason, model), pipeline.settings, _quiet
        )
        return told.model_copy(update={"status": "moved", "ledger_line": returned.entry.seq})
    evidence = evidence_to_release(pipeline.now(), head.entries)
    if evidence.model != model:
        raise EvidenceError(
            f"Model {model[:12]} is not the one that was made last ({evidence.model[:12]}), and was"
            f" never in {asked.stage}. Only the newest candidate is released: ml-assets run"
            f" {pipeline.name}"
        )
    verified = certified(pipeline.store, pipeline.name, head, verify(head.entries, evidence))
    if isinstance(verified, Refused):
        raise EvidenceError("\n".join(verified.reasons))
    run = launch(
        pipeline.settings.ui_url,
        f"{pipeline.name}__refresh",
        {},
        {TRIGGER_TAG: "api", ASKED_BY: author, "why": one_line(f"{asked.stage}: {asked.reason}")},
        [[pipeline.name, "released_model"]],
    )
    return told.model_copy(update={"run_id": run})


def _archive(
    pipeline: Pipeline, told: StageMoved, entries: Sequence[LedgerEntry], asked: Asked
) -> StageMoved:
    stage = stage_of(entries, told.version)
    if stage == "archived":
        return told.model_copy(update={"status": "there already"})
    line = abort(pipeline, told.version, asked.author, asked.reason)
    if line is not None:
        project_stages(pipeline.store, Tracking.of(pipeline.settings), pipeline.name)
        return told.model_copy(update={"status": "moved", "ledger_line": line.seq})
    raise EvidenceError(
        f"Model {told.version[:12]} is in {stage or 'no stage'}: only staging and canary can be"
        " left. A model leaves production when another one takes its place (a release, or the stage"
        " of the version before: a rollback)."
    )


def _require_a_way(
    pipeline: Pipeline, model: str, stage: str, entries: Sequence[LedgerEntry]
) -> None:
    """Return where the spec lets a model into a stage by its gates, or it was there before."""
    release = pipeline.spec.release
    if stage == release.entrance:
        return
    if stage == release.to:
        if decided_move(entries, model, release.to):
            return
        raise EvidenceError(
            f"{pipeline.name} asks for canary evidence: a model comes to {stage} from canary alone,"
            f" by the comparison on rows that come later: ml-assets release promote {pipeline.name}"
        )
    raise EvidenceError(
        f"{pipeline.name} releases to {release.to}, not to {stage}: see 'release' in defs.yaml."
    )


def _quiet(_line: str) -> None:
    """The answer has what happened."""
