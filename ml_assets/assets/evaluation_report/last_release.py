"""The stored report of a model, and what differs from the model that was released before it."""

from pydantic import ValidationError

from ml_assets.adapters.step import RunLog
from ml_assets.errors import StorageError
from ml_assets.graph.inputs import require_record
from ml_assets.records.changes import Candidate, changes
from ml_assets.records.run_record import RunRecord
from ml_assets.spec.records import REPORT_FILE, EvaluationReport, ReleaseChanges, StageRecord
from ml_assets.store.layout import Address, read_record
from ml_assets.store.pipeline_context import PipelineState
from ml_assets.store.snapshots import CommitId, SnapshotStore


def read_report(store: SnapshotStore, base: CommitId, pipeline: str) -> EvaluationReport:
    """The stored report of a pipeline at a commit.

    Raises:
        StorageError: there is none.
    """
    address = Address(pipeline, "evaluation_report")
    require_record(store, base, address)
    return EvaluationReport.model_validate_json(store.read_bytes(base, address.file(REPORT_FILE)))


def read_changes(report: StageRecord) -> ReleaseChanges | None:
    """What the model of a report's record changed; None where no release came before it."""
    found = report.attributes.get("changes")
    return ReleaseChanges.model_validate(found) if found else None


def changes_since(
    log: RunLog,
    state: PipelineState,
    report: EvaluationReport,
) -> ReleaseChanges | None:
    """What a candidate changes; None where no release came before it, or none that can be read."""
    data = require_record(state.store, state.commit, Address(state.name, "training_set"))
    now = Candidate(state.spec.model_dump(mode="json"), data, report)
    try:
        before = last_release(state)
    except (StorageError, ValidationError) as error:
        log.warning(f"the last release cannot be compared with: {error}")
        return None
    return changes(before, now, before.report.model) if before and before.report else None


def last_release(state: PipelineState) -> Candidate | None:
    """The model released last, with its spec, data and report as they were then.

    Raises:
        StorageError: something of it is not there any more.
        ValidationError: another version wrote it.
    """
    released = read_record(state.store, state.commit, Address(state.name, "released_model"))
    if released is None:
        return None
    model = Address(state.name, "trained_model")
    then = next(i.commit for i in released.inputs if i.key == model.key)
    if then is None:
        return None
    run = RunRecord.model_validate_json(state.store.read_bytes(then, model.file("run.json")))
    data = require_record(state.store, then, Address(state.name, "training_set"))
    return Candidate(run.config, data, read_report(state.store, then, state.name))
