"""The one way to load a released model: whole files, a decision that passed, and its certificate.

Predictions, comparisons, initial weights, exports and rollbacks all come through here; anything
missing, stale, foreign or altered is refused with a sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ml_assets.errors import (
    CertificateRefused,
    EvidenceError,
    MlAssetsError,
    NothingReleased,
    Recalled,
    StorageError,
    StoreAway,
)
from ml_assets.records.ledger.certificate import certificate_path, open_envelope, require_about
from ml_assets.records.ledger.chain import path_of, read
from ml_assets.records.ledger.stages import (
    champion,
    decided_move,
    decision_line,
    override_line,
    stage_line,
    standing_refusal,
)
from ml_assets.records.recalls import quarantine, require_sound_model, said_of
from ml_assets.spec.certificate import Certificate, Provenance
from ml_assets.spec.gates import Target
from ml_assets.spec.recalls import Recall
from ml_assets.spec.records import LedgerEntry
from ml_assets.spec.stages import CANARY_STAGES
from ml_assets.spec.training_program import ModelManifest, Ref
from ml_assets.store.objects import LocalObjects, bytes_digest, inside, verify
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.safetensors_file import check_safetensors
from ml_assets.store.snapshots import MAIN, CommitId, SnapshotStore

MANIFEST = "model.json"
_AGAIN = " Make it again."
"""The end of what is said of any damaged file; here it is said how."""
_RUN_AGAIN = "Make it again: ml-assets run {} --fresh"


@dataclass(frozen=True)
class LoadedModel:
    """A model that may be used: every byte of it is what was decided on."""

    model: Ref
    manifest: ModelManifest
    line: LedgerEntry
    """The decision that let it through."""
    override: LedgerEntry | None
    """A person's word for it, where that decision refused it."""
    certificate: Certificate
    refused_since: LedgerEntry | None
    """A later decision that refused it, by a policy that was not there when it was released: the
    release stands until somebody moves it."""
    judged_on: Recall | None
    """The recall of the rows that let it out of canary: it was made from none of them, so it stays,
    but no sound rows speak for it."""


@dataclass(frozen=True)
class LoadedRelease(LoadedModel):
    """The model that is in a stage."""

    entry: LedgerEntry
    """The line of the ledger that put it there."""


def load_release(
    store: SnapshotStore,
    objects: LocalObjects,
    pipeline: str,
    stage: Target,
    commit: CommitId | None = None,
) -> LoadedRelease:
    """The model in a stage, as of a commit (default: the head of ``main``).

    Raises:
        NothingReleased: the ledger names none.
        EvidenceError: its decision or certificate does not hold.
        StorageError: its files are not what its digest names.
    """
    at = commit or store.resolve(MAIN)
    entries = read(store, pipeline, at)
    entry = stage_line(entries, stage)
    if entry is None:
        waits = champion(entries, "canary")
        then = (
            f"Model {waits[:12]} is in canary and has to be judged first:"
            f" ml-assets release promote {pipeline}"
            if waits
            else f"{_newest_refused(entries, pipeline)}Release one first: ml-assets run {pipeline}"
        )
        raise NothingReleased(f"{pipeline} has no model in {stage}. {then}")
    led = entry if entry.because is None else decided_move(entries, entry.model)
    found = load_model(store, objects, pipeline, entry.model, at, moved=led)
    return LoadedRelease(**vars(found), entry=entry)


def _newest_refused(entries: Sequence[LedgerEntry], pipeline: str) -> str:
    """That the newest model was refused, and by what; empty where it was not."""
    line = standing_refusal(entries)
    if line is None or line.decision is None:
        return ""
    failed = [gate.name for gate in line.decision.gates if not gate.passed]
    by = f" by {', '.join(failed)}" if failed else ""
    return (
        f"The newest, model {line.model[:12]}, was refused{by}: ml-assets release history"
        f" {pipeline} says why. "
    )


def load_model(
    store: SnapshotStore,
    objects: LocalObjects,
    pipeline: str,
    model: str,
    commit: CommitId | None = None,
    moved: LedgerEntry | None = None,
) -> LoadedModel:
    """A model that was decided on, held to its decision, its certificate and its digest.

    Args:
        model: its digest.
        commit: the ledger as of then; default: the head of ``main``.
        moved: the line that put it in a stage: a refusal that came later does not move it out.

    Raises:
        EvidenceError: its decision or certificate does not hold.
        Recalled: it was made from bad data.
        StorageError: its files are not what its digest names.
    """
    at = commit or store.resolve(MAIN)
    entries = read(store, pipeline, at)
    line, refused_since = _in_force(entries, pipeline, model, moved)
    override = override_line(entries, line) if why_not(line) else None
    require_sound_model(store, at, pipeline, model)  # whatever was decided on it
    certificate = certificate_of(store, pipeline, override or line, at)
    if certificate.provenance is None:
        raise CertificateRefused(
            f"{pipeline}: the certificate of ledger line {line.seq} does not say what model"
            f" {model[:12]} was made from. It is not used."
        )
    ref, manifest = open_files(objects, pipeline, model)
    report = canary_report_behind(entries, model, moved)
    rows = quarantine(store, at).of(f"{pipeline}/{CANARY_STAGES[0]}", None, report or "")
    return LoadedModel(ref, manifest, line, override, certificate, refused_since, rows)


def canary_report_behind(
    entries: Sequence[LedgerEntry], model: str, moved: LedgerEntry | None
) -> str | None:
    """The version of the report by which a model passed its canary; None: it passed none.

    Args:
        moved: the line that put it in a stage: what was decided later did not.
    """
    before = [e for e in entries if moved is None or e.seq <= moved.seq]
    line = decision_line(before, model, canary=True)
    decision = line.decision if line else None
    return decision.evidence.report if decision and decision.passed else None


def provenance_in_force(store: SnapshotStore, pipeline: str, model: str) -> Provenance | None:
    """Return what a model was made from, as the certificate says by which it may be used.

    Raises:
        EvidenceError: its decision or certificate does not hold.
    """
    at = store.resolve(MAIN)
    line, _ = _in_force(read(store, pipeline, at), pipeline, model, None)
    return certificate_of(store, pipeline, line, at).provenance


def certificate_of(
    store: SnapshotStore, pipeline: str, line: LedgerEntry, commit: CommitId | None = None
) -> Certificate:
    """The certificate of a decision, or of an override: of a trusted key, about exactly this line.

    Raises:
        CertificateRefused: there is none, or it does not hold.
    """
    at = commit or store.resolve(MAIN)
    path = certificate_path(pipeline, line.seq)
    if not store.exists(at, path):
        raise CertificateRefused(
            f"{pipeline}: the {line.kind} in ledger line {line.seq} on model {line.model[:12]} has"
            f" no certificate ({path} is missing). Let the gates decide again: ml-assets run"
            f" {pipeline}"
        )
    try:
        certificate = open_envelope(store.read_bytes(at, path), store.keys.trusted)
        stored = store.read_bytes(at, path_of(pipeline, line.seq))
        require_about(certificate, line, stored, _overridden(store, pipeline, line, at))
    except CertificateRefused as error:
        raise CertificateRefused(f"{pipeline}, {path}: {error}") from error
    if certificate.pipeline != pipeline:
        raise CertificateRefused(f"{path} is about the pipeline {certificate.pipeline!r}.")
    return certificate


def _overridden(
    store: SnapshotStore, pipeline: str, line: LedgerEntry, commit: CommitId
) -> LedgerEntry | None:
    """The decision that an override is set against; None for any other line."""
    if line.overrides is None:
        return None
    return read(store, pipeline, commit)[line.overrides - 1]


def open_files(objects: LocalObjects, pipeline: str, model: str) -> tuple[Ref, ModelManifest]:
    """The files of a model, held to its digest: the manifest by it, the weights by the manifest.

    Raises:
        StorageError: one is lost, changed, or leads somewhere else.
    """
    remedy = f"It is not used. {_RUN_AGAIN.format(pipeline)}"
    try:
        folder = objects.here("models", model)
        manifest = held_manifest(folder, model)
        held_weights(folder, manifest)
    except StorageError as error:
        raise StorageError(
            f"The model {model[:12]} of {pipeline} is lost or damaged:"
            f" {str(error).removesuffix(_AGAIN)} {remedy}"
        ) from error
    return Ref(uri=str(folder), digest=model), manifest


def held_manifest(folder: Path, model: str) -> ModelManifest:
    """The manifest of a model, held to the digest that names it.

    Raises:
        StorageError: it is lost, or another one.
    """
    file = inside(folder, MANIFEST)
    try:
        data = file.read_bytes()
        if bytes_digest(data) != model:
            raise StorageError(
                f"{file} has the checksum {bytes_digest(data)[:12]}, not {model[:12]}."
            )
        return ModelManifest.model_validate_json(data)
    except (OSError, ValidationError) as error:
        raise StorageError(f"{file} cannot be read: {error}") from error


def require_other_weights(pipeline: Pipeline, weights: str, name: str) -> None:
    """Refuse a file that is byte for byte the weights of a recalled model, whatever it is called.

    Args:
        weights: the file's SHA-256.
        name: what a message calls it.

    Raises:
        Recalled: it is.
    """
    store = pipeline.store
    now = store.resolve(MAIN)
    held = quarantine(store, now)
    by_pipeline = [models for recall in held.recalls for models in recall.models().values()]
    for model in sorted({model for models in by_pipeline for model in models}):
        found = held.model_anywhere(model)
        if found and _weights_of(pipeline.objects, model) == weights:
            said = said_of(found, pipeline.name)
            raise Recalled(f"{name} has the weights of model {model[:12]}, which {said}")


def _weights_of(objects: LocalObjects, model: str) -> str | None:
    """The SHA-256 of a model's weights; None: its files are no longer kept."""
    try:
        return held_manifest(objects.here("models", model), model).weights.sha256
    except StoreAway:
        raise
    except StorageError:
        return None


def held_weights(folder: Path, manifest: ModelManifest) -> Path:
    """The weights that a manifest names, held to it and to their format.

    Raises:
        StorageError: they are lost, changed, elsewhere, or not what they claim to be.
    """
    weights = inside(folder, manifest.weights.path)
    verify(folder, [manifest.weights])
    if weights.suffix == ".safetensors":
        check_safetensors(weights)
    return weights


def why_not(line: LedgerEntry) -> str:
    """Return why a decision does not let its model through; empty where it does."""
    decision = line.decision
    if decision is None or not decision.gates:
        return f"The decision (ledger line {line.seq}) evaluated no gate: nothing speaks for it."
    failed = [f"{gate.name}: {gate.reason}" for gate in decision.gates if not gate.passed]
    if decision.passed and not failed:
        return ""
    said = "; ".join(failed) or decision.reason
    return f"The decision (ledger line {line.seq}) refused the model. {said}"


def _in_force(
    entries: Sequence[LedgerEntry], pipeline: str, model: str, moved: LedgerEntry | None
) -> tuple[LedgerEntry, LedgerEntry | None]:
    """The decision that lets a model through, and a later one that would not."""
    newest = decision_line(entries, model)
    if newest is None:
        raise EvidenceError(
            f"{pipeline}: there is no decision on model {model[:12]} in the ledger. It is not used."
        )
    refused = why_not(newest)
    if not refused or override_line(entries, newest):
        return newest, None
    before = [e for e in entries if moved and e.seq < moved.seq]
    then = decision_line(before, model)
    if then is None or (why_not(then) and not override_line(before, then)):
        raise EvidenceError(f"{pipeline}: model {model[:12]} is not used. {refused}")
    return then, newest


def find_release(pipeline: Pipeline) -> LoadedRelease:
    """The model in the stage that the pipeline releases to.

    Raises:
        NothingReleased: the ledger names none.
        EvidenceError: its decision or certificate does not hold.
        StorageError: its files are not what its digest names.
    """
    return load_release(pipeline.store, pipeline.objects, pipeline.name, pipeline.spec.release.to)


def doubts(model: LoadedModel) -> tuple[str, ...]:
    """What a person is told of a model that is in a stage, and that the gates of now or the rows of
    now would not bring there."""
    name, since, recall = model.model.digest[:12], model.refused_since, model.judged_on
    found = list[str]()
    if since:
        found.append(
            f"model {name} was refused since it was released (ledger line {since.seq}:"
            f" {since.reason}). It stays until another one is released."
        )
    if recall:
        found.append(
            f"the rows by which model {name} passed its canary are recalled by {recall.author}:"
            f" {recall.reason} (recall {recall.id}, {recall.time:%Y-%m-%d}). It stays until another"
            " one is released or somebody rolls back."
        )
    return tuple(found)


@dataclass(frozen=True)
class ReleaseCheck:
    """What is to be said of the released model before anybody uses it."""

    unusable: str | None = None
    """Why it is refused wherever it is loaded."""
    doubts: tuple[str, ...] = ()


def check_release(pipeline: Pipeline) -> ReleaseCheck:
    """Load the released model, and return what is wrong with it; nothing is where there is none."""
    try:
        return ReleaseCheck(doubts=doubts(find_release(pipeline)))
    except NothingReleased:
        return ReleaseCheck()
    except MlAssetsError as error:
        return ReleaseCheck(unusable=str(error))
