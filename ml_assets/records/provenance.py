"""Gathers what a model was made from, out of signed records, and checks it against the evidence."""

from pydantic import ValidationError

from ml_assets.errors import EvidenceError
from ml_assets.records.run_record import RUN_FILE, RunRecord, contradiction
from ml_assets.spec.certificate import Provenance
from ml_assets.spec.records import Evidence, StageRecord
from ml_assets.store.layout import Address, read_record
from ml_assets.store.pipeline_context import PipelineState
from ml_assets.store.snapshots import CommitId, SnapshotStore


def provenance_of(state: PipelineState, evidence: Evidence) -> Provenance:
    """The provenance of a model as of a state of its pipeline.

    Raises:
        EvidenceError: the records there are about another model, training set or report.
    """
    pipeline, store = state.name, state.store
    model = _record(store, state.commit, state.address("trained_model"))
    report = _record(store, state.commit, state.address("evaluation_report"))
    run = run_record_at(store, state.commit, pipeline)
    data = _training_set(store, run)
    judged_on = next((i.version for i in report.inputs if i.key == data.key), None)
    held = (
        ("the model", model.data_version, evidence.model),
        ("the model of its run record", run.outputs.get("model"), evidence.model),
        ("the training set that it was trained on", data.data_version, evidence.data),
        ("the training set that it was judged on", judged_on, evidence.data),
        ("the report", report.data_version, evidence.report),
        ("the training code", model.code_version, evidence.code),
    )
    wrong = [
        f"{what} is {(found or 'none')[:12]}, the evidence names {expected[:12]}"
        for what, found, expected in held
        if found != expected
    ]
    if wrong:
        raise EvidenceError(
            f"{pipeline}: it is not known what model {evidence.model[:12]} was made from:"
            f" {'; '.join(wrong)}. Materialize evaluation_report and its gates again."
        )
    said = "it names no program" if run.program is None else contradiction(run)
    if run.program is None or said:
        raise EvidenceError(
            f"{pipeline}: the run record of its training contradicts itself: {said}. Train again:"
            f" ml-assets run {pipeline} --fresh"
        )
    given = {i.key: i.version for i in run.inputs}
    return Provenance(
        training_set=data.data_version,
        inputs=data.inputs,
        init=given.get("init_from"),
        teacher=given.get("distill"),
        sources=run.environment.code.sources,
        git_sha=run.environment.code.git_sha,
        lock=run.environment.lock,
        settings=run.environment.settings,
        spec=run.config_digest,
        reproduces=run.reproduces,
        program=run.program,
        registered=run.registered,
        nodes=run.nodes,
        baseline=report.attributes.get("baseline"),
    )


def _record(store: SnapshotStore, commit: CommitId, address: Address) -> StageRecord:
    record = read_record(store, commit, address)
    if record is None:
        raise EvidenceError(f"{address} was never materialized: nothing says what was decided on.")
    return record


def _training_set(store: SnapshotStore, run: RunRecord) -> StageRecord:
    """As it was when the training read it: another one may have been made since."""
    address = Address(run.pipeline, "training_set")
    commit = next((i.commit for i in run.inputs if i.key == address.key), None)
    if commit is None:
        raise EvidenceError(f"{run.pipeline}: the run record names no training set. Train again.")
    return _record(store, commit, address)


def run_record_at(store: SnapshotStore, commit: CommitId, pipeline: str) -> RunRecord:
    """The run record of the training whose model is the pipeline's at a commit.

    Raises:
        EvidenceError: it is not there, or cannot be read.
    """
    path = Address(pipeline, "trained_model").file(RUN_FILE)
    if not store.exists(commit, path):
        raise EvidenceError(f"{pipeline}: the run record {path} is not there. Train again.")
    try:
        return RunRecord.model_validate_json(store.read_bytes(commit, path))
    except ValidationError as error:
        raise EvidenceError(f"{pipeline}: the run record {path} cannot be read: {error}") from error
