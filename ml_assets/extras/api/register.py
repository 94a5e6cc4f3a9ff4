"""Makes a model that was made elsewhere a candidate: its files are kept, the ledger records it, and
a Dagster run judges it by the same report and gates as every other one."""

from collections.abc import Sequence
from typing import Any

from ml_assets.adapters.runs import PIPELINE_TAG, TRIGGER_TAG
from ml_assets.adapters.served_dagster import launch, run_status, tagged_run
from ml_assets.errors import EvidenceError
from ml_assets.extras.api.artifact import take_model
from ml_assets.extras.api.shapes import ModelRegistered, Problem, RegisterRequest
from ml_assets.extras.api.stages import ASKED_BY
from ml_assets.records.ledger.chain import read, register
from ml_assets.records.ledger.stages import decision_line
from ml_assets.records.tracking.links import Links
from ml_assets.settings.access import read_register_from
from ml_assets.spec.records import LedgerEntry
from ml_assets.spec.registered import Registered
from ml_assets.store.pipeline_context import Pipeline

_MODEL_TAG = "ml_assets/registered"
_ENDED = ("failure", "canceled")


def register_model(pipeline: Pipeline, asked: RegisterRequest, author: str) -> ModelRegistered:
    """Register a model, and have it judged; the same request again changes nothing.

    Raises:
        NotAllowed: its files cannot be taken; every mistake is listed.
        EvidenceError: the model, or the version, is known already as another one.
        DagsterAway: the run that judges it could not be launched; asking again launches it.
    """
    wrong = _stage_problems(pipeline, asked)
    model = take_model(pipeline, asked.artifact_uri, read_register_from(), wrong).digest
    said = Registered(version=asked.version, uri=asked.artifact_uri, claims=asked.metrics)
    entries = read(pipeline.store, pipeline.name)
    _require_new_or_same(entries, model, said)
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


def _require_new_or_same(entries: Sequence[LedgerEntry], model: str, said: Registered) -> None:
    for entry in entries:
        other = entry.registered
        if entry.kind != "registration":
            continue
        if entry.model == model and other != said:
            by = f"registered as version {other.version} with other words" if other else "made here"
            raise EvidenceError(
                f"Model {model[:12]} is known: it was {by} (ledger line {entry.seq}). What was said"
                " then stays."
            )
        if entry.model != model and other and other.version == said.version:
            raise EvidenceError(
                f"Version {said.version} is model {entry.model[:12]} (ledger line {entry.seq}), and"
                f" these files are model {model[:12]}: give them a version of their own."
            )
