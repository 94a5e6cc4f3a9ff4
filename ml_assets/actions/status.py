"""Reports a pipeline's state as one JSON document: stages, versions, inputs and release."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ml_assets.assets.drift_report.last_report import find_report
from ml_assets.assets.evaluation_report.stored_report import read_report
from ml_assets.assets.trained_model.checks import checks_of, sanity_job
from ml_assets.assets.trained_model.training_job import data_ref
from ml_assets.automation.planner.selection import model_run
from ml_assets.errors import MlAssetsError, SpecError, StorageError
from ml_assets.launch.launcher import Launcher
from ml_assets.records.data_failures import failed_partitions
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.origin import find_origin
from ml_assets.records.ledger.replay import what_now
from ml_assets.records.ledger.stages import (
    decision_line,
    latest_decision,
    stage_line,
    standing_override,
    standing_refusal,
)
from ml_assets.records.recalls import Quarantine, quarantine, recalled, said_of
from ml_assets.records.recent_runs import last_failure
from ml_assets.spec.records import InputVersion, LedgerEntry, StageRecord
from ml_assets.spec.stages import STAGES
from ml_assets.store.layout import read_records
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import CommitId

SCHEMA = 1


def status(pipeline: Pipeline, launcher: Launcher, *, begun: bool) -> dict[str, Any]:
    """The state of a pipeline at the head of ``main``; its ``inputs`` lead to the sources.

    Args:
        begun: nothing is made yet where it is False, and no store is made by asking.
    """
    document = {
        "schema": SCHEMA,
        "pipeline": pipeline.name,
        "spec": pipeline.spec.model_dump(mode="json"),
    }
    if not begun:
        return {**document, **_NOTHING}
    store = pipeline.store
    base = store.resolve("main")
    records = sorted(read_records(store, base, pipeline.name), key=_order)
    bad = quarantine(store, base)
    entries = read(store, pipeline.name, base)
    release = _release(pipeline, records, entries)
    if release is not None:
        found = recalled(store, base, pipeline.name, release["version"])
        release["recalled"] = said_of(found, pipeline.name) if found else None
    return {
        **document,
        "stages": [_stage(record, base, bad) for record in records],
        "sanity": _sanity(pipeline, records, launcher),
        "failure": standing_failure(pipeline),
        "failed": failed_partitions(pipeline.at(base)),
        "release": release,
        "canary": _canary(pipeline, base, entries),
        "refusal": _refusal(pipeline, entries),
        "drift": _drift(pipeline),
    }


_NOTHING: Mapping[str, Any] = MappingProxyType(
    {
        "stages": [],
        "sanity": None,
        "failure": None,
        "failed": {},
        "release": None,
        "canary": None,
        "refusal": None,
        "drift": None,
    }
)


def standing_failure(pipeline: Pipeline) -> str | None:
    """What failed last, as long as something is due; None: nothing did, or all is made since, as
    where the data behind it is again what it was before."""
    failed = last_failure(pipeline)
    if failed is None or failed_partitions(pipeline.now()):
        return failed
    try:
        due = model_run(pipeline, as_of=None)
    except MlAssetsError:  # nobody can tell
        return failed
    return failed if due.selection is not None or due.sanity else None


def _drift(pipeline: Pipeline) -> str | None:
    """The alarm of the last report on the release; None: there is none."""
    try:
        found = find_report(pipeline)
    except (SpecError, StorageError):  # it watches for none, or no report is there to read
        return None
    alarm = found.report.alarm
    return alarm.reason if alarm and not found.outdated else None


def _order(record: StageRecord) -> tuple[int, str, str]:
    return STAGES.index(record.key.split("/")[1]), record.key, record.partition or ""


def _stage(record: StageRecord, base: CommitId, bad: Quarantine) -> dict[str, Any]:
    recall = bad.of_record(record)
    return {
        "key": record.key,
        "partition": record.partition,
        "version": record.data_version,
        "snapshot": base,
        "time": record.time.isoformat(),
        "run": record.run,
        "rows": record.rows,
        "recalled": recall.id if recall else None,
        "warnings": list(record.attributes.get("warnings", ())),
        "inputs": [_input(i) for i in record.inputs],
    }


def _input(version: InputVersion) -> dict[str, Any]:
    return {"key": version.key, "partition": version.partition, "version": version.version}


def _sanity(
    pipeline: Pipeline, records: list[StageRecord], launcher: Launcher
) -> list[dict[str, Any]] | None:
    """The checks of the newest training set and the model as the spec has it now; None: not yet."""
    data = next((r for r in records if r.key == f"{pipeline.name}/training_set"), None)
    if data is None or not checks_of(pipeline):
        return None
    known = launcher.known_sanity(sanity_job(pipeline, data_ref(pipeline, data)))
    return None if known is None else [check.model_dump(mode="json") for check in known.checks]


def _release(
    pipeline: Pipeline, records: list[StageRecord], entries: tuple[LedgerEntry, ...]
) -> dict[str, Any] | None:
    """The model in the stage that the pipeline releases to, and what it stands by."""
    move = stage_line(entries, pipeline.spec.release.to)
    if move is None:
        return None
    decision = latest_decision(entries, move.model)
    override = standing_override(entries, move.model)
    record = next((r for r in records if r.key.endswith("/released_model")), None)
    report = next((r for r in records if r.key.endswith("/evaluation_report")), None)
    return {
        "version": move.model,
        "stage": move.stage,
        "time": move.time.isoformat(),
        "metrics": _metrics(pipeline, records, move.model),
        "processes": _processes(records, move.model),
        "gates": [gate.model_dump(mode="json") for gate in decision.gates] if decision else [],
        "decision": "passed" if decision and decision.passed else "refused",
        "reason": decision.reason if decision else move.reason,
        "override": override.model_dump(mode="json") if override else None,
        "inputs": [_input(i) for i in record.inputs] if record else [],
        "simpler": _simpler(pipeline, move.model) if report else None,
    }


def _metrics(pipeline: Pipeline, records: list[StageRecord], model: str) -> dict[str, float]:
    """What the model was judged by: the newest report may be of one that was refused."""
    report = next((r for r in records if r.key.endswith("/evaluation_report")), None)
    inputs = report.inputs if report else ()
    if model in (one.version for one in inputs if one.key.endswith("/trained_model")):
        return metrics_of(records)
    origin = find_origin(pipeline.store, pipeline.name, model)
    if origin is None:
        return {}
    return metrics_of(read_records(pipeline.store, origin.commit, pipeline.name))


def _simpler(pipeline: Pipeline, model: str) -> str | None:
    """What the report says for a simpler model than the released one; None: keep it."""
    try:
        report = read_report(pipeline.now())
    except StorageError:  # recalled or damaged, which is told where the release is loaded
        return None
    said = report.recommendation
    return said.reason if said and not said.keep and report.model == model else None


def _canary(
    pipeline: Pipeline, base: CommitId, entries: tuple[LedgerEntry, ...]
) -> dict[str, Any] | None:
    """The model on its way to production, what was decided on it there, and its recall."""
    move = stage_line(entries, "canary")
    if move is None or pipeline.spec.release.to == "canary":
        return None
    line = decision_line(entries, move.model, canary=True)
    decision = line.decision if line else None
    found = recalled(pipeline.store, base, pipeline.name, move.model)
    return {
        "version": move.model,
        "time": move.time.isoformat(),
        "decision": decision.reason if decision else None,
        "recalled": found.told if found else None,
    }


def _refusal(pipeline: Pipeline, entries: tuple[LedgerEntry, ...]) -> dict[str, Any] | None:
    """The newest decision, where it refused its model and nobody answers for it: what was released
    before still stands."""
    line = standing_refusal(entries)
    decision = line.decision if line else None
    if decision is None:
        return None
    spec = pipeline.spec
    advice = what_now(entries, spec.release.to, spec.gates, decision.gates, pipeline.name)
    return {
        "version": decision.evidence.model,
        "time": decision.time.isoformat(),
        "gates": [gate.model_dump(mode="json") for gate in decision.gates],
        "reason": decision.reason,
        "what_now": f"{advice.gate}: {advice.said}" if advice else None,
    }


def _processes(records: list[StageRecord], model: str) -> int | None:
    """How many processes trained a model; None: it was made elsewhere, or a newer one is here."""
    made = (r for r in records if r.key.endswith("/trained_model") and r.data_version == model)
    record = next(made, None)
    return record.attributes.get("processes") if record else None


def metrics_of(records: Sequence[StageRecord]) -> dict[str, float]:
    """The holdout metrics of the newest report."""
    record = next((r for r in records if r.key.endswith("/evaluation_report")), None)
    return dict(record.attributes.get("metrics", {})) if record else {}
