"""Verifies the claims about releases: of a pipeline in its store, or of an exported folder."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ml_assets.assets.released_model.bundle import AUTHORSHIP, UNSIGNED, Check, check_bundle
from ml_assets.assets.released_model.gate_decision import results_after
from ml_assets.assets.released_model.gates.decide import policy_digest
from ml_assets.assets.released_model.made_from import (
    other_code,
    records_behind,
    require_own_sources,
)
from ml_assets.assets.released_model.tags import left_behind, planted_names, wrong_names
from ml_assets.errors import (
    EvidenceError,
    MlAssetsError,
    SettingsError,
    SpecError,
    StorageError,
    counted,
    one_line,
)
from ml_assets.load_extras import load_extra
from ml_assets.records.ledger.certificate import certificate_path
from ml_assets.records.ledger.chain import path_of, pipelines_with_ledger, read
from ml_assets.records.ledger.origin import Origin, commit_of, find_origin
from ml_assets.records.ledger.stages import champion, decision_line, stages
from ml_assets.records.load_release import (
    LoadedRelease,
    certificate_of,
    doubts,
    load_release,
)
from ml_assets.records.recall_files import lost_recalls
from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.records.tracking.projection import shown_otherwise
from ml_assets.settings import Settings
from ml_assets.spec.certificate import Provenance
from ml_assets.spec.load import load_spec, pipeline_folders
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import Decision, GateResult, LedgerEntry, StageRecord
from ml_assets.store.embedded.trust import given_keys
from ml_assets.store.objects import LocalObjects
from ml_assets.store.open import has_snapshots, open_objects, open_snapshots
from ml_assets.store.pipeline_context import Pipeline, PipelineState
from ml_assets.store.signing import Keys, key_name, public_key
from ml_assets.store.snapshots import CommitId, SnapshotStore

_WITNESS = re.compile(r"([1-9]\d{0,8}):([0-9a-f]{12,64})")


@dataclass(frozen=True)
class Verification:
    """Everything that was looked at about one subject."""

    subject: str
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        return all(check.outcome != "refused" for check in self.checks)


def verify_folder(folder: Path, key: str | None) -> Verification:
    """An exported folder, offline.

    Args:
        key: the public key to hold it to, or a file that has it; None: those of the environment.

    Raises:
        SettingsError: there is no such folder, or the key is none.
    """
    if not folder.is_dir():
        raise SettingsError(f"{folder} is neither a folder nor the name of a pipeline.")
    return Verification(str(folder), tuple(check_bundle(folder, trusted_keys(key))))


def verify_pipelines(
    settings: Settings, pipeline: str | None, witness: str | None
) -> list[Verification]:
    """The ledger of a pipeline (None: of each that has one), its certificates and its stages.

    Args:
        witness: ``SEQ:SHA256`` of a line that was the head of the ledger when somebody noted it.

    Raises:
        SettingsError: there is no store, or the witness is none.
    """
    if not has_snapshots(settings.snapshots):
        raise SettingsError(f"There is no snapshot store {settings.snapshots}: nothing is decided.")
    noted = _noted(witness) if witness else None
    store, objects = (
        open_snapshots(settings.snapshots),
        open_objects(settings.objects, settings.cache),
    )
    try:
        commit = store.resolve()
        names = pipelines_with_ledger(store, commit)
    except MlAssetsError as error:
        said = Check("store", "refused", str(error))
        return [Verification(pipeline or settings.snapshots, (said,))]
    wanted = names if pipeline is None else [pipeline]
    return [
        Verification(name, tuple(_checks(settings, store, objects, commit, name, noted)))
        for name in wanted
    ]


def _checks(
    settings: Settings,
    store: SnapshotStore,
    objects: LocalObjects,
    commit: CommitId,
    pipeline: str,
    noted: tuple[int, str] | None,
) -> Iterator[Check]:
    by = "signed by a trusted key" if store.keys.trusted else "not signed: no key is set"
    yield Check("store", "ok", f"commit {commit[:12]} is {by}")
    try:
        entries = read(store, pipeline, commit)
    except MlAssetsError as error:
        yield Check("ledger", "refused", str(error))
        return
    digests = [
        sha256(store.read_bytes(commit, path_of(pipeline, entry.seq))).hexdigest()
        for entry in entries
    ]
    head = f"{len(digests)}:{digests[-1]}" if digests else "none"
    yield Check("ledger", "ok", f"{counted(len(entries), 'line')}, each chained to the one before")
    if noted:
        yield _held_to(noted, digests)
    yield from _tags(store, pipeline)
    in_stages = stages(entries)
    yield from _certificates(store, commit, pipeline, entries, set(in_stages.values()))
    for stage in in_stages:
        try:
            found = load_release(store, objects, pipeline, stage, commit)
            said = f"model {found.model.digest[:12]}, by the decision in line {found.line.seq}"
            yield Check(stage, "ok", said)
            yield from (Check(stage, "note", said) for said in doubts(found))
            yield from _behind(settings, store, found)
        except MlAssetsError as error:
            yield Check(stage, "refused", str(error))
    if in_stages:
        wrong = shown_otherwise(store, Tracking.of(settings), pipeline)
        said = wrong or "its aliases lead to the models of the ledger"
        yield Check("mlflow", "note" if wrong else "ok", said)
    yield Check("proves", "note", _proves(store.keys))
    kept = "keep it elsewhere: with --head a later state is compared with it"
    yield Check("head", "note", f"{head} ({kept})")


def _tags(store: SnapshotStore, pipeline: str) -> Iterator[Check]:
    """One check for all that name the state of their move, and one for each that does not."""
    planted = list[str]()
    try:
        wrong = [*wrong_names(store, pipeline), *lost_recalls(store)] or left_behind(store)
        planted = planted_names(store)
    except MlAssetsError as error:
        wrong = [str(error)]
    for said in planted:
        yield Check("tags", "note", said)
    for said in wrong:
        yield Check("tags", "refused", said)
    if not wrong:
        yield Check("tags", "ok", "each name is that of a move in the ledger, or of a known recall")


def _behind(settings: Settings, store: SnapshotStore, found: LoadedRelease) -> Iterator[Check]:
    """Whether what is behind a release was read where spec and settings of now say, and whether the
    code of now made it: a spec that was edited since makes nothing of a release wrong."""
    pipeline, made_from = found.certificate.pipeline, found.certificate.provenance
    folder = pipeline_folders(settings).get(pipeline)
    if folder is None or made_from is None:
        yield Check("sources", "note", f"no spec of {pipeline} is here to compare them with")
        return
    try:
        opened = Pipeline(load_spec(folder), folder, settings)
    except SpecError as error:
        said = f"nothing is compared with the spec of {pipeline}: {one_line(str(error))}"
        yield Check("sources", "note", said)
        return
    yield _policy(opened, found)
    yield from _canary_again(opened, found)
    try:
        origin = find_origin(store, pipeline, found.model.digest)
        if origin is None:
            yield Check("sources", "note", "the records of its training are no longer kept")
            return
        behind = records_behind(store, origin.commit, pipeline)
    except StorageError as error:
        yield Check("sources", "note", str(error))
        return
    yield _sources(settings, made_from, opened, behind)
    yield _code(store, origin, opened, behind)
    yield _decided_again(opened.at(origin.commit), origin, found)


def _policy(pipeline: Pipeline, found: LoadedRelease) -> Check:
    """Whether the gates of the spec of now decided; without which of them."""
    spec, decision = pipeline.spec, found.line.decision
    if decision is None or decision.evidence.policy == policy_digest(spec.gates, spec.release):
        return Check("policy", "ok", "decided by the gates of the present spec")
    asked = {gate.name for gate in decision.gates}
    wanted = [] if decision.canary else [gate.name for gate in spec.gates]
    missing = [name for name in wanted if name not in asked]
    without = f", without {', '.join(missing)}" if missing else ""
    return Check("policy", "note", f"decided by other gates than the spec has now{without}")


def _decided_again(state: PipelineState, origin: Origin, found: LoadedRelease) -> Check:
    """Whether the gates of this process come to the same decision on the report that was decided
    on: those of the process that decided may have been changed by code that ran in it."""
    decision, spec = found.line.decision, state.spec
    if decision is None or decision.evidence.report != origin.report.data_version:
        return Check("gates", "note", "the report behind the decision is no longer kept")
    entries = [e for e in read(state.store, state.name) if e.seq < found.line.seq]
    there = champion(entries, spec.release.to)
    rival = decision.evidence.champion
    recalled = there if there != rival else None
    return _same_outcome(
        "gates", decision, spec, lambda: results_after(entries, state, rival, recalled)
    )


def _canary_again(pipeline: Pipeline, found: LoadedRelease) -> Iterator[Check]:
    """Decide again what moved the model out of canary, if a decision did. What its traffic said is
    not asked again."""
    lines = read(pipeline.store, pipeline.name)
    line = decision_line(lines[: found.entry.seq], found.model.digest, canary=True)
    if line is None or line.decision is None:
        return
    if found.judged_on:
        yield Check("canary gate", "note", "its rows are recalled, so it is not decided again")
        return
    decision, commit = line.decision, commit_of(pipeline.store, pipeline.name, line)
    if commit is None:
        yield Check("canary gate", "note", "the report behind the decision is no longer kept")
        return
    state, before = pipeline.at(commit), lines[: line.seq - 1]

    def again() -> Sequence[GateResult]:
        return load_extra("release.canary").gate_again(state, decision, before)

    yield _same_outcome("canary gate", decision, pipeline.spec, again)


def _same_outcome(
    what: str, decision: Decision, spec: PipelineSpec, again: Callable[[], Sequence[GateResult]]
) -> Check:
    """Whether gates come to the same again; those of another policy are not asked."""
    if decision.evidence.policy != policy_digest(spec.gates, spec.release):
        return Check(what, "note", "the spec has other gates now, so it is not decided again")
    try:
        results = again()
    except StorageError as error:
        return Check(what, "note", str(error))
    was = {gate.name: gate.passed for gate in decision.gates}
    other = [gate.name for gate in results if was.get(gate.name) is not gate.passed]
    if other:
        said = (
            "decided again on the same report, the gates of this code give another outcome for"
            f" {', '.join(other)}: the process that decided ran other gates"
        )
        return Check(what, "refused", said)
    return Check(what, "ok", "decided again on the same report, each has the same outcome")


def _sources(
    settings: Settings, made_from: Provenance, pipeline: Pipeline, behind: Sequence[StageRecord]
) -> Check:
    try:
        named = require_own_sources(behind, pipeline.spec.sources, settings)
    except EvidenceError as error:
        return Check("sources", "refused", str(error))
    here, there = settings.digest[:12], made_from.settings[:12]
    under = (
        f"settings {there}, those of here" if here == there else f"settings {there}, here {here}"
    )
    places = "; ".join(f"{name}: {place}" for name, place in named.items())
    return Check("sources", "ok", f"{places}; trained under {under}")


def _code(
    store: SnapshotStore, origin: Origin, pipeline: Pipeline, behind: Sequence[StageRecord]
) -> Check:
    try:
        other = other_code(pipeline, store, origin.commit, behind)
    except MlAssetsError as error:
        return Check("code", "note", str(error))
    if other:
        said = f"made by other code or another spec than the present ones: {', '.join(other)}"
        return Check("code", "note", said)
    return Check("code", "ok", "made by the present spec and code")


def _certificates(
    store: SnapshotStore,
    commit: CommitId,
    pipeline: str,
    entries: Sequence[LedgerEntry],
    in_stages: set[str],
) -> Iterator[Check]:
    """One check for all that hold, and one for each that does not."""
    decisions = [entry for entry in entries if entry.kind in ("decision", "override")]
    held, refused = 0, False
    for line in decisions:
        missing = not store.exists(commit, certificate_path(pipeline, line.seq))
        if missing and line.model not in in_stages:
            said = f"line {line.seq} has none, so its model is never loaded"
            yield Check("certificate", "note", said)
            continue
        try:
            certificate_of(store, pipeline, line, commit)
            held += 1
        except MlAssetsError as error:
            refused = True
            yield Check("certificate", "refused", str(error))
    said = f"{held} of {len(decisions)} certified (decisions and overrides)"
    yield Check("certificates", "note" if refused else "ok", said)


def _held_to(noted: tuple[int, str], digests: list[str]) -> Check:
    seq, digest = noted
    if seq > len(digests):
        said = (
            f"The noted head is line {seq}, but the ledger ends at line {len(digests)}:"
            " the store was put back to an earlier state."
        )
        return Check("head noted", "refused", said)
    if not digests[seq - 1].startswith(digest):
        said = (
            f"Line {seq} has the digest {digests[seq - 1][:12]}, but {digest[:12]} was noted: the"
            " ledger has another history."
        )
        return Check("head noted", "refused", said)
    return Check("head noted", "ok", f"line {seq} is the one that was noted")


def _proves(keys: Keys) -> str:
    if not keys.trusted:
        return UNSIGNED
    named = ", ".join(key_name(key) for key in sorted(keys.trusted))
    return f"{AUTHORSHIP}, where only trusted people hold {named}"


def trusted_keys(key: str | None) -> frozenset[str]:
    """The public key that is given, or in the file that is; None: those of the environment.

    Raises:
        SettingsError: it is none.
    """
    if key is not None:
        file = Path(key)
        text = file.read_text().strip() if file.is_file() else key
        return frozenset({public_key(text, "--key")})
    return given_keys().trusted


def _noted(witness: str) -> tuple[int, str]:
    found = _WITNESS.fullmatch(witness)
    if not found:
        raise SettingsError(f"--head is {witness!r}; expected SEQ:SHA256, as verify prints it.")
    return int(found[1]), found[2]
