"""Turns a plan into runs: the steps of the walk, each run's assets and configuration.

The gates are due again where the evidence, the policy or the champion changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.adapters.runs import Selection
from ml_assets.assets.feature_set.leak_checks import set_checks
from ml_assets.assets.released_model.gate_decision import current_evidence
from ml_assets.assets.trained_model.checks import checks_of
from ml_assets.assets.training_set.window import resolve_window
from ml_assets.automation.planner.graph_nodes import plan_model
from ml_assets.automation.planner.plan import Item, Plan, contiguous
from ml_assets.graph.inputs import require_record
from ml_assets.records.ledger.certificate import certificate_path
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import (
    another_since,
    decision_line,
    override_line,
    put_out_line,
)
from ml_assets.spec.records import LedgerEntry
from ml_assets.spec.stages import MODEL_STAGES
from ml_assets.store.layout import Address, read_record
from ml_assets.store.pipeline_context import Pipeline


@dataclass(frozen=True)
class ModelRun:
    """The due part of the model's stages."""

    plan: Plan
    sanity: str
    """Why the training set is examined; empty when it was, or the model has no checks."""
    gates: str
    """Why the gates have to decide again; empty when a decision stands."""
    selection: Selection | None
    """None: nothing is due."""
    as_of: str | None
    config: Mapping[str, Any] = field(default_factory=dict)
    refusal: str = ""
    """Why the present model is not released and another attempt would change nothing; empty where
    it may be."""


def data_runs(
    pipeline: Pipeline, items: Sequence[Item], order: Sequence[str], *, apart: bool = False
) -> list[Selection]:
    """One run for the unpartitioned assets, then one for each range without a gap, of like items.

    Args:
        items: what is to be made, all of the same step of the walk (sources, or features).
        order: every partition key that there can be, oldest first.
        apart: a run for each partition, as a cluster makes them side by side.
    """
    whole = _keys(pipeline, [item for item in items if item.node.address.partition is None])
    cut = [item for item in items if item.node.address.partition is not None]
    runs = [Selection(whole)] if whole else []
    for group in alike(cut):
        keys = sorted({item.node.address.partition or "" for item in group})
        for span in [(key, key) for key in keys] if apart else contiguous(keys, order):
            runs.append(Selection(_keys(pipeline, group), partitions=span))
    return runs


def alike(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Partitions of which the same assets are due: a range makes each of its assets throughout,
    and would read a source again that has a partition no more."""
    assets: dict[str | None, frozenset[str]] = {}
    for item in items:
        address = item.node.address
        assets[address.partition] = assets.get(address.partition, frozenset()) | {address.key}
    for together in dict.fromkeys(assets.values()):
        yield [item for item in items if assets[item.node.address.partition] == together]


def model_run(
    pipeline: Pipeline,
    *,
    as_of: str | None,
    fresh: str | None = None,
    epochs: int | None = None,
    stages: Sequence[str] = MODEL_STAGES,
) -> ModelRun:
    """Return what has to be made of the model's stages, for one window, resolved here and handed
    over.

    Raises:
        WindowError: partitions of the window are missing, or ``as_of`` is not one.
        SpecError: the model's family has no epochs.
    """
    window = resolve_window(pipeline.at(pipeline.store.resolve("main")), as_of)
    keys = [k for part in window.splits.values() for k in part] if window else [None]
    plan = plan_model(pipeline.with_epochs(epochs), keys, fresh)
    trains = any(item.node.address.stage == "trained_model" for item in plan.due)
    held = "" if trains else put_out(pipeline)
    if held:
        plan = plan.without(Address(pipeline.name, "released_model"), held)
    due = [item for item in plan.due if item.node.address.stage in stages]
    assets = list(_keys(pipeline, due))
    gates = ""
    if "evaluation_report" in stages:
        report = asset_key(pipeline, "evaluation_report")
        if report in assets:
            gates = "the report is due"
        elif not held:  # what was rolled back from stays out, whatever the gates would say
            gates = gate_is_due(pipeline)
        if gates == CHAMPION_MOVED:
            assets.insert(0, report)  # it compares with the champion of its day
    released = asset_key(pipeline, "released_model")
    if gates and "released_model" in stages and released not in assets and not held:
        assets.append(released)
    refusal = _refusal(pipeline) if assets == [released] and not gates else ""
    if refusal:
        plan = plan.without(Address(pipeline.name, "released_model"), refusal)
        assets = []
    sanity = _sanity_is_due(pipeline, assets)
    resolved = window.as_of if window else None
    if not assets and not gates:
        return ModelRun(plan, sanity, gates, None, resolved, refusal=refusal)
    checks = (
        *(leak_keys(pipeline) if asset_key(pipeline, "training_set") in assets else ()),
        *(sanity_keys(pipeline) if sanity else ()),
        *(gate_keys(pipeline) if gates else ()),
    )
    training = {"fresh": fresh, "epochs": epochs}
    config = _config(pipeline, assets, resolved, training)
    return ModelRun(plan, sanity, gates, Selection(tuple(assets), checks), resolved, config)


def sanity_keys(pipeline: Pipeline) -> tuple[dg.AssetCheckKey, ...]:
    """The sanity checks, as Dagster names them."""
    data = asset_key(pipeline, "training_set")
    return tuple(dg.AssetCheckKey(data, name) for name in checks_of(pipeline))


def leak_keys(pipeline: Pipeline) -> tuple[dg.AssetCheckKey, ...]:
    """The leak guards of the training set: the step that makes it cannot leave them out."""
    data = asset_key(pipeline, "training_set")
    return tuple(dg.AssetCheckKey(data, name) for name in set_checks(pipeline))


def _sanity_is_due(pipeline: Pipeline, assets: Sequence[dg.AssetKey]) -> str:
    """Why the training set is examined. What was examined before costs nothing again."""
    if not checks_of(pipeline):
        return ""
    stages = {"training_set": "the training set is due", "trained_model": "the model is due"}
    return next((why for stage, why in stages.items() if asset_key(pipeline, stage) in assets), "")


def gate_keys(pipeline: Pipeline) -> tuple[dg.AssetCheckKey, ...]:
    """The gates, as Dagster names them."""
    report = asset_key(pipeline, "evaluation_report")
    return tuple(dg.AssetCheckKey(report, gate.name) for gate in pipeline.spec.gates)


def _keys(pipeline: Pipeline, items: Sequence[Item]) -> tuple[dg.AssetKey, ...]:
    """The assets of the items, each once, in the order of the plan."""
    addresses = [item.node.address for item in items]
    return tuple(dict.fromkeys(asset_key(pipeline, a.stage, a.source) for a in addresses))


def _config(
    pipeline: Pipeline,
    assets: Sequence[dg.AssetKey],
    as_of: str | None,
    training: Mapping[str, str | int | None],
) -> dict[str, Any]:
    ops: dict[str, Any] = {}
    if asset_key(pipeline, "training_set") in assets and as_of:
        ops[f"{pipeline.name}__training_set"] = {"config": {"as_of": as_of}}
    asked = {field: value for field, value in training.items() if value is not None}
    if asset_key(pipeline, "trained_model") in assets and asked:
        ops[f"{pipeline.name}__train"] = {"config": asked}
    return {"ops": ops} if ops else {}


CHAMPION_MOVED = "another model became champion"


def gate_is_due(pipeline: Pipeline) -> str:
    """Return why the gates have to decide again; empty when a decision stands."""
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
    if evidence.champion is None and another_since(entries, line, pipeline.spec.release.to):
        return CHAMPION_MOVED
    return ""


def put_out(pipeline: Pipeline) -> str:
    """Return why the present model stays out of its stage: rolled back or taken out; else empty."""
    base = pipeline.store.resolve("main")
    record = read_record(pipeline.store, base, Address(pipeline.name, "trained_model"))
    if record is None:
        return ""
    line = put_out_line(read(pipeline.store, pipeline.name, base), record.data_version)
    if line is None:
        return ""
    if line.kind == "abort":
        return f"it was taken out of its stage in ledger line {line.seq}: {line.reason}"
    return (
        f"{line.author} rolled back from model {line.replaced[:12] if line.replaced else ''} in"
        f" ledger line {line.seq}"
    )


def _refusal(pipeline: Pipeline) -> str:
    """Return who refused the present model, and what would make them decide again; empty where
    nobody did, or a person answers for it.

    The decision has to be about the evidence as it is: see ``gate_is_due``.
    """
    line = _refused_line(pipeline)
    if line is None or line.decision is None:
        return ""
    return (
        f"model {line.model[:12]} was {line.decision.reason} (ledger line {line.seq}). It is judged"
        " again when its data, its spec, its gates or the champion change. To release it"
        f" anyway, on your responsibility: ml-assets release override {pipeline.name}"
    )


def _refused_line(pipeline: Pipeline) -> LedgerEntry | None:
    """The newest decision on the present model, where it is a refusal nobody answers for."""
    model = require_record(pipeline.now(), pipeline.address("trained_model")).data_version
    entries = read(pipeline.store, pipeline.name)
    line = decision_line(entries, model)
    if line is None or line.decision is None or line.decision.passed:
        return None
    return None if override_line(entries, line) else line


def standing_refusal(pipeline: Pipeline) -> str:
    """Return why the present model was refused; empty where something changed since, or a person
    answers for it."""
    held = put_out(pipeline)
    if held:
        return held
    if gate_is_due(pipeline):
        return ""
    line = _refused_line(pipeline)
    return line.decision.reason if line and line.decision else ""
