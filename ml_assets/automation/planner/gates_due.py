"""Decides whether the gates are due again: the evidence, the policy or the champion changed."""

from ml_assets.assets.released_model.current_evidence import current_evidence
from ml_assets.graph.inputs import require_record
from ml_assets.records.ledger.certificate import certificate_path
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import decision_line, latest_decision, put_out_line
from ml_assets.store.layout import Address, read_record
from ml_assets.store.pipeline_context import Pipeline

CHAMPION_MOVED = "another model became champion"


def gate_is_due(pipeline: Pipeline) -> str:
    """Why the gates have to decide again; empty when a decision stands."""
    base = pipeline.store.resolve("main")
    entries = read(pipeline.store, pipeline.name, base)
    evidence = current_evidence(pipeline.at(base), entries)
    line = decision_line(entries, evidence.model)
    if line is None or line.decision is None:
        return "this model was never decided on"
    if not pipeline.store.exists(base, certificate_path(pipeline.name, line.seq)):
        return "the decision has no certificate"
    was = line.decision.evidence
    if was.policy != evidence.policy:
        return "the policy changed"
    if (was.report, was.data, was.code) != (evidence.report, evidence.data, evidence.code):
        return "the evidence changed"
    if evidence.champion not in (was.champion, evidence.model):
        return CHAMPION_MOVED
    return ""


def put_out(pipeline: Pipeline) -> str:
    """Why the present model stays out of its stage: it was rolled back from, or taken out;
    else empty."""
    base = pipeline.store.resolve("main")
    record = read_record(pipeline.store, base, Address(pipeline.name, "trained_model"))
    if record is None:
        return ""
    line = put_out_line(read(pipeline.store, pipeline.name, base), record.data_version)
    if line is None:
        return ""
    if line.kind == "abort":
        return f"it was taken out in ledger line {line.seq}: {line.reason}"
    return (
        f"{line.author} rolled back from model {line.replaced[:12] if line.replaced else ''} in"
        f" ledger line {line.seq}"
    )


def standing_refusal(pipeline: Pipeline) -> str:
    """Why the present model was refused, where nothing has changed since; else empty."""
    held = put_out(pipeline)
    if held:
        return held
    if gate_is_due(pipeline):
        return ""
    entries = read(pipeline.store, pipeline.name)
    model = require_record(pipeline.now(), pipeline.address("trained_model"))
    decision = latest_decision(entries, model.data_version)
    return decision.reason if decision and not decision.passed else ""
