"""Gathers what a model was made from, and checks it against the present spec, code and settings.

Every move into a stage checks where the model's rows were read; the first move of a model also
checks the code that made it.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from ml_assets.assets.raw_snapshot.readers.read_source import origin_of
from ml_assets.assets.released_model.gates.decide import policy_digest
from ml_assets.errors import EvidenceError, StorageError
from ml_assets.graph.code_version import code_version_of, trained_by
from ml_assets.records.recalls import derived_from, require_sound
from ml_assets.records.run_record import RUN_FILE, RunRecord, contradiction
from ml_assets.settings import Settings
from ml_assets.spec.certificate import Provenance
from ml_assets.spec.load import SPEC_FILE, load_spec
from ml_assets.spec.records import Evidence, InputVersion, StageRecord
from ml_assets.spec.registered import MADE_ELSEWHERE
from ml_assets.spec.sources import SourceSpec
from ml_assets.spec.training_program.identity import Program
from ml_assets.store.layout import Address, read_record
from ml_assets.store.pipeline_context import Pipeline, PipelineState
from ml_assets.store.snapshots import MAIN, CommitId, SnapshotStore


def require_made_here(origin: PipelineState) -> None:
    """Hold all that lies behind a model to the recalls, and to sources, code and gates of here.

    Args:
        origin: the model and the report on it are the pipeline's at this commit.

    Raises:
        Recalled: a recall reached something, as of now.
        EvidenceError: something was read elsewhere, or made by other code or another spec; or the
            folder's spec judges otherwise than that of this process.
        SpecError: the folder's spec is wrong, or gone.
        StorageError: nothing says where or by what.
    """
    pipeline = origin.pipeline
    records = records_behind(origin.store, origin.commit, origin.name)
    now = origin.store.resolve(MAIN)
    for record in records:
        require_sound(origin.store, now, record)
    require_own_sources(records, origin.spec.sources, pipeline.settings)
    _refuse(other_code(pipeline, origin.store, origin.commit, records), origin.name)
    _require_present_judgement(pipeline)


_JUDGEMENT = ("evaluation", "label", "split")
"""The parts of a spec, beside its policy, that say how a model is judged, and on which rows."""


def _require_present_judgement(pipeline: Pipeline) -> None:
    """A run takes hours, and a spec may be edited meanwhile."""
    now, read = load_spec(pipeline.folder), pipeline.spec
    changed = [part for part in _JUDGEMENT if getattr(now, part) != getattr(read, part)]
    if policy_digest(now.gates, now.release) != policy_digest(read.gates, read.release):
        changed.insert(0, "gates or release")
    if changed:
        raise EvidenceError(
            f"{pipeline.name}: {', '.join(changed)} changed in {pipeline.folder / SPEC_FILE} since"
            " this process read it. Nothing was moved, because the present spec has to judge the"
            " model. Run again (in the UI, reload the definitions first)."
        )


def require_rows_made_here(state: PipelineState, inputs: Sequence[InputVersion]) -> None:
    """Hold rows that decide on a model, and all behind them, to sources and code of here.

    Args:
        inputs: the rows, and what else the decision is made from.

    Raises:
        EvidenceError: something was read elsewhere, or made by other code or another spec.
        StorageError: nothing says where or by what.
    """
    records = _behind(state.store, state.commit, inputs)
    require_own_sources(records, state.spec.sources, state.pipeline.settings)
    _refuse(_made_otherwise(state.pipeline, records, {}), state.name)


def _refuse(other: Sequence[str], pipeline: str) -> None:
    if other:
        raise EvidenceError(
            f"{', '.join(other)}: made by other code or another spec than the present ones "
            "(functions, contracts, split, label, evaluation, the package's own). Make them with "
            f"the present ones: ml-assets run {pipeline}"
        )


def require_own_sources(
    records: Iterable[StageRecord], sources: Mapping[str, SourceSpec], settings: Settings
) -> Mapping[str, str]:
    """Source -> where it was read, once all behind a model was read where it should be.

    Args:
        records: of all that lies behind it.

    Raises:
        EvidenceError: something was read elsewhere.
    """
    named = {
        name: origin_of(source, Path(settings.sources), settings.sql_url)
        for name, source in sources.items()
    }
    wrong = set[str]()
    for record in records:
        address = Address.of(record.key)
        read = record.attributes.get("receipt", {}).get("source")
        if address.stage != "raw_snapshot" or not address.source:
            continue
        if read is None or read != named.get(address.source):
            wrong.add(
                f"{record.key}{f' [{record.partition}]' if record.partition else ''} was read from"
                f" {read or 'an unknown place'}, but the spec and the settings name"
                f" {named.get(address.source)}"
            )
    if wrong:
        some, more = sorted(wrong)[:3], len(wrong) - 3
        raise EvidenceError(
            f"{'; '.join(some)}{f'; and {more} more' if more > 0 else ''}. Deliver them where the "
            "settings look (ML_ASSETS_SOURCES, ML_ASSETS_SQL_<NAME>, the spec's path), and run "
            "again: they are read again."
        )
    return named


def other_code(
    pipeline: Pipeline, store: SnapshotStore, origin: CommitId, behind: Iterable[StageRecord]
) -> Sequence[str]:
    """Return what other code, or another part of the spec, made than lies here: a key for each.

    A raw snapshot is what was read, whatever would read it now. A run may ask for other epochs: the
    gates judge that model as any other.

    Args:
        origin: the model and the report on it are the pipeline's at this commit.
        behind: the records of what they were made from.

    Raises:
        EvidenceError: the run record of the training is not there.
    """
    name, now = pipeline.name, store.resolve(MAIN)
    judged = [_made(store, origin, Address(name, stage)) for stage in _JUDGED]
    made = [_as_it_is(store, now, record) for record in judged]
    run = run_record_at(store, origin, name)
    trained = pipeline.with_asked_epochs(run.config["training"].get("epochs"))
    by = (MADE_ELSEWHERE,) if run.registered else _trained_by(trained, run.program)
    return _made_otherwise(pipeline, (*behind, *made), {f"{name}/trained_model": by})


_JUDGED = ("trained_model", "evaluation_report")


def _made_otherwise(
    pipeline: Pipeline, records: Iterable[StageRecord], known: Mapping[str, tuple[str, ...]]
) -> Sequence[str]:
    """The keys of what was not made by the code version that it would have now.

    Args:
        known: key -> the code versions that count for it.
    """
    here, found = dict(known), dict[str, None]()
    for record in records:
        address = Address.of(record.key)
        if address.stage == "raw_snapshot":
            continue
        if record.key not in here:
            here[record.key] = (code_version_of(pipeline, address.stage, address.source),)
        if record.code_version not in here[record.key]:
            found.setdefault(record.key)
    return [*found]


def _trained_by(pipeline: Pipeline, program: Program | None) -> tuple[str, ...]:
    """The code versions of a training that counts: by what lies here, or the program it names."""
    here = trained_by(pipeline, None)
    return (here, trained_by(pipeline, program)) if program else (here,)


def records_behind(store: SnapshotStore, origin: CommitId, pipeline: str) -> Sequence[StageRecord]:
    """The records of the rows of a commit's model, and of all that they were made from: of its
    training set, and of the earlier holdouts that the report on it is about.

    Each as it is now, where that has the same content: other code may have come to the same.

    Raises:
        StorageError: one is not kept.
    """
    of_set, of_rows = (Address(pipeline, stage).key for stage in ("training_set", "feature_set"))
    model, report = (_made(store, origin, Address(pipeline, stage)) for stage in _JUDGED)
    trained_on = [i for i in model.inputs if i.key == of_set]
    return _behind(store, origin, [*trained_on, *(i for i in report.inputs if i.key == of_rows)])


def _behind(
    store: SnapshotStore, origin: CommitId, inputs: Sequence[InputVersion]
) -> Sequence[StageRecord]:
    """The records of inputs as of a commit, and of all that they were made from."""
    now, todo = store.resolve(MAIN), [*inputs]
    seen = dict[tuple[str, str | None, str], StageRecord]()
    while todo:
        version = todo.pop()
        node = version.key, version.partition, version.version
        if version.commit is None or node in seen:
            continue
        seen[node] = _version(store, (now, origin, version.commit), version)
        todo.extend(derived_from(seen[node]))
    return [*seen.values()]


def _made(store: SnapshotStore, commit: CommitId, address: Address) -> StageRecord:
    record = read_record(store, commit, address)
    if record is None:
        raise StorageError(f"The record of {address} is missing, so what made it is unknown.")
    return record


def _as_it_is(store: SnapshotStore, now: CommitId, record: StageRecord) -> StageRecord:
    found = read_record(store, now, Address.of(record.key, record.partition))
    return found if found and found.data_version == record.data_version else record


def _version(
    store: SnapshotStore, commits: Sequence[CommitId], version: InputVersion
) -> StageRecord:
    """As the first of some commits has it that has the same content.

    The commit that it was read at comes last: ``gc`` keeps it only where no later one has it.
    """
    address = Address.of(version.key, version.partition)
    for commit in commits:
        record = read_record(store, commit, address)
        if record is not None and record.data_version == version.version:
            return record
    raise StorageError(f"The record of {address} is missing, so its origin is unknown.")


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
