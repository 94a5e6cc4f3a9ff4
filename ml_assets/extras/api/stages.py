"""Moves a model version to a stage, if the evidence allows it, through the existing doors.

A version that was there before comes back by a rollback. The pipeline's own asset releases a new
one, in a Dagster run that checks everything; what it would refuse is reported at once.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_assets.actions.rollback import roll_back
from ml_assets.adapters.runs import PIPELINE_TAG, TRIGGER_TAG
from ml_assets.adapters.served_dagster import launch, run_status, tagged_run
from ml_assets.assets.released_model.gate_decision import evidence_to_release
from ml_assets.assets.released_model.promote import Refused, certified, verify
from ml_assets.assets.released_model.rollback import RollbackRequest, abort
from ml_assets.errors import EvidenceError, Recalled, answered, one_line
from ml_assets.extras.api.artifact import take_model
from ml_assets.extras.api.shapes import (
    ModelRegistered,
    Problem,
    RegisterRequest,
    StageMoved,
    StageRequest,
)
from ml_assets.records.ledger.chain import read, read_head, register
from ml_assets.records.ledger.stages import (
    decided_move,
    decision_line,
    find_model,
    stage_line,
    stage_of,
)
from ml_assets.records.load_release import held_manifest, require_other_weights
from ml_assets.records.recalls import quarantine, require_sound_model, said_of
from ml_assets.records.tracking.links import Links
from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.records.tracking.projection import project_stages
from ml_assets.settings.access import read_register_from
from ml_assets.spec.records import LedgerEntry
from ml_assets.spec.registered import Registered
from ml_assets.spec.training_program import Ref
from ml_assets.store.pipeline_context import Pipeline

ASKED_BY = "ml_assets/asked_by"
"""Tag of a run: who asked for it through the API."""


def move(pipeline: Pipeline, version: str, asked: StageRequest, author: str) -> StageMoved:
    """Move a version to a stage, or ask Dagster for the run that does.

    Raises:
        UnknownModel: the ledger tells of no such version, or of several.
        EvidenceError: the evidence does not allow it; every reason is given.
        Recalled: it was made from bad data; it can only be taken out.
        DagsterAway: its run could not be launched.
    """
    now = pipeline.store.resolve()
    head = read_head(pipeline.store, pipeline.name, now)
    model = find_model(head.entries, version)
    told = StageMoved(name=pipeline.name, version=model, stage=asked.stage, status="being released")
    if asked.stage == "archived":
        return _archive(pipeline, told, head.entries, RollbackRequest(author, asked.reason, model))
    require_sound_model(pipeline.store, now, pipeline.name, model)
    there = stage_line(head.entries, asked.stage)
    if there is not None and there.model == model:
        return told.model_copy(update={"status": "there already", "ledger_line": there.seq})
    _require_a_way(pipeline, model, asked.stage, head.entries)
    if asked.stage == pipeline.spec.release.to and decided_move(head.entries, model, asked.stage):
        returned = roll_back(
            pipeline.name, RollbackRequest(author, asked.reason, model), pipeline.settings, _quiet
        )
        return told.model_copy(update={"status": "moved", "ledger_line": returned.entry.seq})
    evidence = evidence_to_release(pipeline.now(), head.entries)
    if evidence.model != model:
        raise EvidenceError(
            f"Model {model[:12]} is not the one that was made last ({evidence.model[:12]}), and was"
            f" never in {asked.stage}. Only the newest candidate is released: ml-assets run"
            f" {pipeline.name}"
        )
    verified = verify(head.entries, evidence, pipeline.spec.release.to)
    verified = certified(pipeline.store, pipeline.name, head, verified)
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
    pipeline: Pipeline, told: StageMoved, entries: Sequence[LedgerEntry], asked: RollbackRequest
) -> StageMoved:
    if nobody := answered("Taking a model out", asked.author, asked.reason):
        raise EvidenceError(nobody)
    stage = stage_of(entries, told.version)
    if stage == "archived":
        return told.model_copy(update={"status": "there already"})
    line = abort(pipeline, told.version, asked.author, asked.reason)
    if line is not None:
        project_stages(pipeline.store, Tracking.of(pipeline.settings), pipeline.name)
        return told.model_copy(update={"status": "moved", "ledger_line": line.seq})
    to = pipeline.spec.release.to
    raise EvidenceError(
        f"Model {told.version[:12]} is in {stage or 'no stage'}: a model can leave only staging "
        f"and canary, and only on its way. {pipeline.name} releases to {to}, and a model leaves "
        f"{to} when another one takes its place (a release, or the stage of the version before: a "
        "rollback)."
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


_MODEL_TAG = "ml_assets/registered"
_ENDED = ("failure", "canceled")


def register_model(pipeline: Pipeline, asked: RegisterRequest, author: str) -> ModelRegistered:
    """Register a model, and have it judged; the same request again changes nothing.

    Raises:
        NotAllowed: its files cannot be taken; every mistake is listed.
        EvidenceError: the model, or the version, is known already as another one; or the model is
            recalled, in whatever pipeline, or has the weights of one that is.
        DagsterAway: the run that judges it could not be launched; asking again launches it.
    """
    wrong = _stage_problems(pipeline, asked)
    taken = take_model(pipeline, asked.artifact_uri, read_register_from(), wrong)
    model = taken.digest
    said = Registered(version=asked.version, uri=asked.artifact_uri, claims=asked.metrics)
    entries = read(pipeline.store, pipeline.name)
    _require_new_or_same(entries, model, said)
    _require_recalled_nowhere(pipeline, taken)
    line = register(pipeline.store, pipeline.name, model, author, "", said)
    before = tagged_run(_MODEL_TAG, f"{pipeline.name} {model}")
    status = run_status(before[0]) if before else None
    judged = decision_line(entries, model) is not None
    again = status is not None and (judged or status["status"] not in _ENDED)
    run = before[0] if before and again else _judge(pipeline, asked, model, author)
    return ModelRegistered(
        name=pipeline.name,
        version=model,
        registered_as=asked.version,
        status="registered before" if again else "being judged",
        run_id=run,
        url=Links.of(pipeline.settings).run(run),
        ledger_line=line.seq,
    )


def _judge(pipeline: Pipeline, asked: RegisterRequest, model: str, author: str) -> str:
    """The run that judges it; where a stage is asked for, the gates may lead it there."""
    stages = ["checkpoints", "trained_model", "evaluation_report"]
    if asked.stage != "none":
        stages.append("released_model")
    config: dict[str, Any] = {f"{pipeline.name}__train": {"config": {"registered": model}}}
    tags = {
        PIPELINE_TAG: pipeline.name,
        TRIGGER_TAG: "api",
        ASKED_BY: author,
        _MODEL_TAG: f"{pipeline.name} {model}",
    }
    assets = [[pipeline.name, stage] for stage in stages]
    job = f"{pipeline.name}__refresh"
    return launch(pipeline.settings.ui_url, job, {"ops": config}, tags, assets)


def _stage_problems(pipeline: Pipeline, asked: RegisterRequest) -> list[Problem]:
    release = pipeline.spec.release
    if asked.stage in ("none", release.entrance, release.to):
        return []
    said = (
        f"{pipeline.name} releases to {release.to}, not to {asked.stage}. Ask for {release.to}; or"
        " for none, and the model is judged and not moved."
    )
    return [Problem(field="body.stage", said=said)]


def _require_recalled_nowhere(pipeline: Pipeline, taken: Ref) -> None:
    """Another pipeline knows nothing of the data that a model was made from."""
    name = f"Model {taken.digest[:12]}"
    found = quarantine(pipeline.store, pipeline.store.resolve()).model_anywhere(taken.digest)
    if found:
        raise EvidenceError(f"{name} {said_of(found, pipeline.name)}")
    weights = held_manifest(Path(taken.uri), taken.digest).weights.sha256
    try:
        require_other_weights(pipeline, weights, name)
    except Recalled as error:
        raise EvidenceError(str(error)) from error


def _require_new_or_same(entries: Sequence[LedgerEntry], model: str, said: Registered) -> None:
    for entry in entries:
        other = entry.registered
        if entry.kind != "registration":
            continue
        if entry.model == model and other != said:
            by = "made here"
            if other:
                by = f"registered as version {other.version} with other details"
            raise EvidenceError(
                f"Model {model[:12]} is known: it was {by} (ledger line {entry.seq}). An entry of"
                " the ledger cannot be changed."
            )
        if entry.model != model and other and other.version == said.version:
            raise EvidenceError(
                f"Version {said.version} is model {entry.model[:12]} (ledger line {entry.seq}), and"
                f" these files are model {model[:12]}: give them a version of their own."
            )
