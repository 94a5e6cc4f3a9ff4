"""Writes the evaluation report as one HTML file, with the gates' decision.

It is made from records, so it can be made again any time.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.assets.evaluation_report.page import Background, render
from ml_assets.assets.evaluation_report.stored_report import read_changes, read_report
from ml_assets.assets.evaluation_report.suspect_labels import read_suspects
from ml_assets.assets.released_model.gate_decision import gate_results
from ml_assets.assets.released_model.gates.decide import summary
from ml_assets.assets.trained_model.cost.jobs import session_uses
from ml_assets.assets.trained_model.cost.page import cost_numbers
from ml_assets.errors import DiskRefuses, one_line
from ml_assets.graph.inputs import require_record
from ml_assets.launch.events import session_events
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.staging.mirror import session_here
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import latest_decision, standing_override
from ml_assets.records.recalls import sound_champion
from ml_assets.records.tracking.links import NOTE_TAG, REPORT_TAG, Links, report_name, run_note
from ml_assets.records.tracking.mlflow import Tracking, Unavailable
from ml_assets.records.tracking.outbox import Outbox, OutboxEntry, tell_whole
from ml_assets.spec.records import Decision, EvaluationReport, Measured, StageRecord
from ml_assets.spec.training_program import ModelManifest
from ml_assets.spec.training_progress import TrainingStory
from ml_assets.store.disk import refusal
from ml_assets.store.layout import Address, recent_records
from ml_assets.store.pipeline_context import Pipeline


def publish_report(
    pipeline: Pipeline,
    tracking: Tracking,
    decision: Decision,
) -> Path:
    """Write the page with its decision; tell the session's MLflow run both, and the numbers."""
    page = write_report(pipeline, decision)
    outbox = Outbox(pipeline.settings.home, pipeline.objects)
    entry = outbox.add(_entry(pipeline, decision))
    # the page has brought what there is of the session
    story = _story(pipeline.objects.path("sessions", entry.session))
    run = tell_whole(tracking, entry, story)
    if not isinstance(run, Unavailable):
        tracking.log_artifact(run, page)
        outbox.forget(entry.session)
    return page


def _entry(pipeline: Pipeline, decision: Decision) -> OutboxEntry:
    """What MLflow is told of a decision: of each on the same model one step more."""
    base = pipeline.store.resolve("main")
    model = require_record(pipeline.at(base), pipeline.address("trained_model"))
    session = str(model.attributes["session"])
    links = Links.of(pipeline.settings)
    there = links.report(pipeline.name, model.data_version)
    made = [e for e in read(pipeline.store, pipeline.name, base) if e.kind == "decision"]
    step = sum(entry.model == decision.evidence.model for entry in made)
    uses = session_uses(SessionFolder.of(pipeline.objects, session), pipeline.settings.prices)
    found = decision_numbers(read_report(pipeline.at(base)), decision)
    return OutboxEntry(
        pipeline=pipeline.name,
        session=session,
        status="FINISHED",
        tags={
            REPORT_TAG: there,
            NOTE_TAG: run_note(links, pipeline.name, model.run, there),
            **decision_tags(decision),
        },
        params={},
        numbers={str(step): {**found, **cost_numbers(uses)}},
    )


def decision_numbers(report: EvaluationReport, decision: Decision) -> dict[str, float]:
    """Return what MLflow plots of a decision: the holdout's metrics, and the gates' numbers."""
    found: dict[str, float | None] = {}
    for name, seen in report.metrics.items():
        found |= {f"holdout/{name}": seen.value}
        found |= {f"holdout/{name}/low": seen.low, f"holdout/{name}/high": seen.high}
    for gate in decision.gates:
        found |= {f"gate/{gate.name}/value": gate.value, f"gate/{gate.name}/bound": gate.bound}
    return {k: v for k, v in found.items() if v is not None and math.isfinite(v)}


def decision_tags(decision: Decision) -> dict[str, str]:
    """Return what MLflow finds a run by: the decision, and what each gate said."""
    said = [("ml_assets.decision", decision.passed, decision.reason)]
    said += [(f"gate.{gate.name}", gate.passed, gate.reason) for gate in decision.gates]
    return {name: f"{'pass' if passed else 'fail'}: {reason}" for name, passed, reason in said}


def write_report(
    pipeline: Pipeline,
    decision: Decision | None = None,
) -> Path:
    """Write ``reports/<pipeline>/<model>.html`` and return where it is.

    Args:
        decision: the one to show; default: the newest in the ledger on this model.
    """
    base = pipeline.store.resolve("main")
    report = read_report(pipeline.at(base))
    record = require_record(pipeline.at(base), pipeline.address("evaluation_report"))
    model = require_record(pipeline.at(base), pipeline.address("trained_model"))
    measured = Measured.model_validate(record.attributes["measured"])
    entries = read(pipeline.store, pipeline.name, base)
    newest = latest_decision(entries, report.model)
    decision = decision or newest
    rival = sound_champion(pipeline.store, base, pipeline.name, entries, pipeline.spec.release.to)
    gates = decision.gates if decision else gate_results(pipeline.at(base), rival)
    missing: list[str] = []
    story = _training_story(pipeline, model.attributes["session"], missing)
    manifest = _manifest(pipeline, report.model, missing)
    html = render(
        report,
        measured,
        gates,
        decision,
        Background(
            story=story,
            preprocessing=manifest.preprocessing if manifest else None,
            label_scale=manifest.label_scale if manifest else None,
            features=recent_records(pipeline.store, base, Address(pipeline.name, "feature_set")),
            changes=read_changes(record),
            ledger=entries,
            gates_said=summary(gates),
            override=standing_override(entries, report.model) if decision == newest else None,
            lineage=(*record.inputs, *model.inputs),
            suspects=read_suspects(pipeline.at(base)),
            origin_cost=record.attributes.get("origins", {}),
            missing=missing,
        ),
        pipeline.spec,
        report_ways(pipeline, record, model),
    )
    name = report_name(report.model)
    pipeline.objects.write_bytes(html.encode(), "reports", pipeline.name, name)
    return pipeline.objects.path("reports", pipeline.name, name)


def report_ways(pipeline: Pipeline, record: StageRecord, model: StageRecord) -> dict[str, str]:
    """The links of the page: the words of each and its address."""
    links = Links.of(pipeline.settings)
    ways = {
        "Experiments": links.experiments(pipeline.name),
        "Lineage in Dagster": links.lineage(
            asset_key(pipeline, "evaluation_report").to_user_string()
        ),
        "Evaluation run": links.run(record.run),
        "Training run": links.run(model.run),
    }
    tracked = model.attributes.get("mlflow_run")
    return {**ways, **({"MLflow run": links.tracking_run(tracked)} if tracked else {})}


def _training_story(pipeline: Pipeline, session: str, missing: list[str]) -> TrainingStory:
    """Return what a session's own events tell of it, as far as this disk takes them."""
    folder = pipeline.objects.path("sessions", session)
    with _told_on_page(pipeline, "The training's pictures may be incomplete", missing):
        folder = session_here(pipeline.objects, session)
    return _story(folder)


def _story(folder: Path) -> TrainingStory:
    story = TrainingStory()
    for event in session_events(folder):
        story.take(event)
    return story


def _manifest(pipeline: Pipeline, model: str, missing: list[str]) -> ModelManifest | None:
    with _told_on_page(pipeline, "The training's first rows are not shown", missing):
        manifest = pipeline.objects.read_bytes("models", model, "model.json")
        return ModelManifest.model_validate_json(manifest)
    return None


@contextmanager
def _told_on_page(pipeline: Pipeline, what: str, missing: list[str]) -> Iterator[None]:
    """Tell on the page what this disk refuses inside the block: the page decides nothing, so no
    step fails for a picture."""
    try:
        yield
    except (OSError, DiskRefuses) as error:
        said = one_line(str(refusal(error, pipeline.objects.root) or error)).rstrip(".")
        again = f"ml-assets models report {pipeline.name}"
        missing.append(f"{what}: {said}. This command makes the page again: {again}")
