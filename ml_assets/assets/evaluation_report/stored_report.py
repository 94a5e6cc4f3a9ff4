"""Reads the stored report of a model, and its differences from the previous release."""

from pydantic import ValidationError

from ml_assets.adapters.step import RunLog
from ml_assets.errors import StorageError
from ml_assets.graph.inputs import require_record
from ml_assets.records.model_changes import Candidate, changes
from ml_assets.records.run_record import RUN_FILE, RunRecord
from ml_assets.spec.records import REPORT_FILE, EvaluationReport, ReleaseChanges, StageRecord
from ml_assets.store.pipeline_context import PipelineState


def read_report(state: PipelineState) -> EvaluationReport:
    """The stored report of a pipeline.

    Raises:
        StorageError: there is none.
    """
    address = state.address("evaluation_report")
    require_record(state, address)
    return EvaluationReport.model_validate_json(state.read_bytes(address.file(REPORT_FILE)))


def read_changes(report: StageRecord) -> ReleaseChanges | None:
    """Return what the model of a report's record changed; None where no release came before it."""
    found = report.attributes.get("changes")
    return ReleaseChanges.model_validate(found) if found else None


def changes_since(
    log: RunLog,
    state: PipelineState,
    report: EvaluationReport,
) -> ReleaseChanges | None:
    """Return what a candidate changes; None: no release that can be read came before it."""
    data = require_record(state, state.address("training_set"))
    now = Candidate(state.spec.model_dump(mode="json"), data, report)
    try:
        before = last_release(state)
    except (StorageError, ValidationError) as error:
        log.warning(f"no comparison with the last release is possible: {error}")
        return None
    return changes(before, now, before.report.model) if before and before.report else None


def last_release(state: PipelineState) -> Candidate | None:
    """The model released last, with its spec, data and report as they were then.

    Raises:
        StorageError: something of it is no longer there.
        ValidationError: another version wrote it.
    """
    released = state.record(state.address("released_model"))
    if released is None:
        return None
    model = state.address("trained_model")
    then = next(i.commit for i in released.inputs if i.key == model.key)
    if then is None:
        return None
    run = RunRecord.model_validate_json(state.store.read_bytes(then, model.file(RUN_FILE)))
    data = require_record(state.at(then), state.address("training_set"))
    return Candidate(run.config, data, read_report(state.at(then)))
