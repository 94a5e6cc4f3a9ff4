"""Packs a released model into a folder that proves itself: its files, certificate, ledger line and
key.

The drift baseline goes with it, so anyone who serves the model can watch for drift.
"""

import shutil
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from ml_assets.assets.evaluation_report.drift_baseline import BASELINE_FILE
from ml_assets.assets.released_model.model_card import model_card
from ml_assets.errors import EvidenceError, MlAssetsError, SettingsError, StorageError, counted
from ml_assets.records.ledger.certificate import open_envelope, read_envelope, require_about
from ml_assets.records.load_release import (
    MANIFEST,
    LoadedModel,
    held_manifest,
    held_weights,
    why_not,
)
from ml_assets.spec.base import Frozen, canonical_json
from ml_assets.spec.certificate import Certificate
from ml_assets.spec.handover import Handover
from ml_assets.spec.records import LedgerEntry
from ml_assets.spec.training_program import ModelManifest
from ml_assets.store.objects import file_digest, inside, make_durable
from ml_assets.store.signing import Signature, is_of_its_key, key_name

CERTIFICATE, LINE, KEY, CARD = (
    "certificate.json",
    "ledger_line.json",
    "signer.pub",
    "MODEL_CARD.md",
)
HANDOVER, HANDOVER_SIGNATURE = "handover.json", "handover.sig"
HANDOVER_TYPE = "application/vnd.ml_assets.handover+json"
OVERRIDDEN = "overridden_line.json"
"""Only of a model that a person answers for, against the gates."""
_OPTIONAL = {OVERRIDDEN, BASELINE_FILE, KEY, HANDOVER, HANDOVER_SIGNATURE}
AUTHORSHIP = "integrity and authorship"
UNSIGNED = "integrity: digests and chain; authorship: not claimed, no signing key is set"
PASSED_ALONE = (
    "this proves the decision, not that the model went to a stage: only the ledger records moves. "
    "Check them: ml-assets release verify PIPELINE"
)
_M = TypeVar("_M", bound=BaseModel)
_MOST_BYTES = 16 << 20
"""The most bytes of any file but the weights and the baseline, which are not read whole."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    outcome: Literal["ok", "refused", "note"]
    reason: str


@dataclass(frozen=True)
class Evidence:
    """Holds what is stored about a release besides its model, byte for byte."""

    envelope: bytes
    """The envelope of the certificate."""
    line: bytes
    """The ledger line that it is about."""
    overridden: bytes | None
    """The line of the decision that it is set against, where it is an override."""
    baseline: bytes | None
    """What new data is held to; None: the certificate names none."""
    handover: bytes
    """What whoever serves it is told."""
    signature: Signature | None
    """The signature of that document; None: whoever exported it has no key."""


def write_bundle(
    loaded: LoadedModel, evidence: Evidence, target: Path, trusted: Collection[str]
) -> bool:
    """Write the folder, whole or not at all; False where it is there already, the same.

    Args:
        trusted: public keys that count, base64: the folder is held to them.

    Raises:
        SettingsError: something else lies there, or it cannot be written.
        StorageError: a file changed while it was copied.
    """
    signed, told = read_envelope(evidence.envelope).signatures, evidence.signature
    source = Path(loaded.model.uri)
    wanted = {
        CERTIFICATE: evidence.envelope,
        LINE: evidence.line,
        KEY: f"{signed[0].keyid}\n".encode() if signed else None,
        CARD: model_card(loaded.certificate, loaded.manifest).encode(),
        OVERRIDDEN: evidence.overridden,
        BASELINE_FILE: evidence.baseline,
        HANDOVER: evidence.handover,
        HANDOVER_SIGNATURE: canonical_json(vars(told)) if told else None,
    }
    small = {name: content for name, content in wanted.items() if content is not None}
    if target.exists():
        if _is_this(target, small, trusted):
            return False
        raise SettingsError(f"{target} exists already and holds something else; give another --to.")
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        draft.mkdir(parents=True)
        for name, content in small.items():
            _write(draft / name, content)
        for name in (MANIFEST, loaded.manifest.weights.path):
            shutil.copyfile(inside(source, name), draft / name)
            make_durable(draft / name)
        refused = [c.reason for c in check_bundle(draft, trusted) if c.outcome == "refused"]
        if refused:
            raise StorageError(f"Nothing was exported: {' '.join(refused)}")
        draft.rename(target)
    except OSError as error:
        raise SettingsError(f"{target} cannot be written: {error.strerror}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return True


def check_bundle(folder: Path, trusted: Collection[str]) -> list[Check]:
    """Hold every file of a folder to its certificate; nothing in it is executed or unpickled.

    Args:
        trusted: public keys that count, base64; empty: the key that lies in the folder, which
            shows that nothing was changed and not who wrote it.
    """
    return list(_Bundle(folder, trusted).checks())


class _Signed(Frozen):
    key: str
    value: str


class _Bundle:
    """A folder while it is looked at: each check needs what the one before has read."""

    def __init__(self, folder: Path, trusted: Collection[str]) -> None:
        self._folder = folder
        self._trusted = trusted
        self._key = ""
        """That signed the certificate; empty: nobody did."""
        self._certificate: Certificate | None = None
        self._manifest: ModelManifest | None = None

    def checks(self) -> Iterator[Check]:
        """All of them, up to the first that is refused."""
        steps: tuple[tuple[str, Callable[[], str]], ...] = (
            ("files", self._only_files),
            ("signature", self._signature),
            ("ledger line", self._line),
            ("decision", self._decision),
            ("model", self._model),
            ("weights", self._weights),
            ("model card", self._card),
            ("baseline", self._baseline),
            ("handover", self._handover),
        )
        for name, step in steps:
            try:
                yield Check(name, "ok", step())
            except OSError as error:
                said = f"{error.filename or self._folder} cannot be read: {error.strerror}."
                yield Check(name, "refused", said)
                return
            except MlAssetsError as error:
                yield Check(name, "refused", str(error))
                return
        yield Check("release", "note", PASSED_ALONE)
        yield self._authorship()

    def _only_files(self) -> str:
        names = sorted(path.name for path in self._folder.iterdir())
        for name in names:
            file = self._folder / name
            if file.is_symlink() or not file.is_file():
                raise StorageError(f"{file} is not a plain file.")
        known = {CERTIFICATE, LINE, CARD, MANIFEST}
        lost, weights = sorted(known - set(names)), sorted(set(names) - known - _OPTIONAL)
        if lost:
            raise StorageError(f"{self._folder} lacks {', '.join(lost)}.")
        if len(weights) != 1:
            named = ", ".join(weights) or "none"
            raise StorageError(
                f"{self._folder} has to have one file of weights beside the others; found: {named}."
            )
        return counted(len(names), "plain file")

    def _signature(self) -> str:
        content = self._read(CERTIFICATE)
        envelope = read_envelope(content)
        _require_as_written(CERTIFICATE, content, envelope)
        named = [one.keyid for one in envelope.signatures]
        if len(named) > 1:
            said = ", ".join(key_name(key) for key in named)
            raise EvidenceError(f"{CERTIFICATE} is signed by {said}; expected one signature.")
        for name in (KEY, HANDOVER, HANDOVER_SIGNATURE):
            there = (self._folder / name).exists()
            if named and not there:
                raise EvidenceError(
                    f"{CERTIFICATE} is signed, and {name}, which is exported with it, is not there."
                    " Export the release again: ml-assets release export PIPELINE"
                )
            if there and not named and name != HANDOVER:
                raise EvidenceError(f"{name} is there, but {CERTIFICATE} is not signed.")
        if not named:
            self._certificate = open_envelope(content, self._trusted)
            return "none: no signing key was set"
        [self._key] = named
        if self._read(KEY) != f"{self._key}\n".encode():
            raise EvidenceError(f"{KEY} does not hold the key that signed, {key_name(self._key)}.")
        self._certificate = open_envelope(content, self._trusted or {self._key})
        return f"of key {key_name(self._key)}"

    def _line(self) -> str:
        content = self._read(LINE)
        entry = _parsed(LedgerEntry, LINE, content)
        overridden: LedgerEntry | None = None
        if entry.overrides is not None:
            overridden = _parsed(LedgerEntry, OVERRIDDEN, self._read(OVERRIDDEN))
        elif (self._folder / OVERRIDDEN).exists():
            raise StorageError(f"{OVERRIDDEN} is there, but nothing was overridden.")
        require_about(self._held, entry, content, overridden)
        if entry.decision and entry.decision.canary:
            raise EvidenceError(
                f"{LINE} is a decision on a canary, and not one of the gates, which is what is"
                " exported. Export the release again: ml-assets release export PIPELINE"
            )
        refused = "" if overridden else why_not(entry)
        if refused:
            raise EvidenceError(refused)
        return f"line {entry.seq} of {self._held.pipeline}, SHA-256 {self._held.line.sha256[:12]}"

    def _decision(self) -> str:
        if self._held.provenance is None:
            raise EvidenceError("The certificate does not say what the model was made from.")
        word = self._held.override
        if word is not None:
            return f"OVERRIDDEN by {word.author}, {word.reason}. The gates: {self._held.reason}"
        return f"passed {self._held.time:%Y-%m-%d %H:%M} UTC: {self._held.reason}"

    def _model(self) -> str:
        self._read(MANIFEST)  # no longer than ours are
        self._manifest = held_manifest(self._folder, self._held.model)
        return f"{MANIFEST} is model {self._held.model[:12]}"

    def _weights(self) -> str:
        assert self._manifest is not None  # the check before has read it
        weights = held_weights(self._folder, self._manifest)
        return f"{weights.name}, {self._manifest.weights.size:,} bytes"

    def _card(self) -> str:
        assert self._manifest is not None  # as above
        if self._read(CARD) != model_card(self._held, self._manifest).encode():
            raise StorageError(f"{CARD} says something other than what is signed.")
        return f"{CARD} says what is signed"

    def _baseline(self) -> str:
        named = self._held.provenance.baseline if self._held.provenance else None
        if named is None:
            if (self._folder / BASELINE_FILE).exists():
                raise StorageError(f"{BASELINE_FILE} is there, but the certificate names none.")
            return "none: the certificate names none"
        if file_digest(self._folder / BASELINE_FILE) != named:
            raise StorageError(f"{BASELINE_FILE} is not the one that was certified.")
        return f"{BASELINE_FILE} is the one that was certified"

    def _handover(self) -> str:
        """It is about this model, and signed where the certificate is, by a key that counts."""
        if not (self._folder / HANDOVER).exists():
            return "none: an older version exported it, unsigned"
        content = self._read(HANDOVER)
        said = _parsed(Handover, HANDOVER, content)
        about, held = (said.pipeline, said.model), (self._held.pipeline, self._held.model)
        if about != held:
            raise StorageError(f"{HANDOVER} is about model {said.model[:12]} of {said.pipeline}.")
        found = file_digest(self._folder / CERTIFICATE)
        if said.certificate not in (None, found):
            raise StorageError(
                f"{CERTIFICATE} has the digest {found[:12]}, but {HANDOVER} was written for"
                f" {said.certificate[:12]}: one of the two files was replaced. Export the"
                " release again: ml-assets release export PIPELINE"
            )
        if not self._key:
            return "about this model, but not signed: the rest of its content proves nothing"
        told = self._read(HANDOVER_SIGNATURE)
        read = _parsed(_Signed, HANDOVER_SIGNATURE, told)
        _require_as_written(HANDOVER_SIGNATURE, told, read)
        signed = Signature(read.key, read.value)
        if signed.key not in (self._trusted or {self._key}):
            raise EvidenceError(f"{HANDOVER} is signed by key {key_name(signed.key)}: not trusted.")
        if not is_of_its_key(HANDOVER_TYPE, content, signed):
            raise EvidenceError(f"{HANDOVER} was altered: its signature is not of these bytes.")
        return f"about this model, signed by key {key_name(signed.key)}"

    def _authorship(self) -> Check:
        if self._trusted:
            return Check("proves", "note", AUTHORSHIP)
        if not (self._folder / KEY).exists():
            return Check("proves", "note", UNSIGNED)
        said = "integrity only: no key was given to verify it with (--key PUBLIC)"
        return Check("proves", "note", said)

    @property
    def _held(self) -> Certificate:
        assert self._certificate is not None  # the signature comes first
        return self._certificate

    def _read(self, name: str) -> bytes:
        file = self._folder / name
        size = file.stat().st_size
        if size > _MOST_BYTES:
            raise StorageError(f"{file} has {size:,} bytes, {_MOST_BYTES:,} at most are read.")
        return file.read_bytes()


def _parsed(model: type[_M], name: str, content: bytes) -> _M:
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in wrong["loc"])
        raise StorageError(
            f"{name} is not what was exported: {f'{where}: ' if where else ''}{wrong['msg']}."
        ) from error


def _require_as_written(name: str, content: bytes, said: BaseModel) -> None:
    """A byte that says nothing was not there when it was exported."""
    if content != canonical_json(said):
        raise StorageError(f"{name} is not as it was exported: it was altered.")


def _is_this(folder: Path, small: dict[str, bytes], trusted: Collection[str]) -> bool:
    """Whether the same model was exported there, and is still whole."""
    try:
        same = all((folder / name).read_bytes() == content for name, content in small.items())
    except OSError:
        return False
    return same and all(check.outcome != "refused" for check in check_bundle(folder, trusted))


def _write(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    make_durable(file)
