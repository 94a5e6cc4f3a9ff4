"""The port of a session's checkpoints, and the rule which of them count.

A checkpoint exists when its manifest does, and that is written last. An attempt claims the session
before it writes; later checkpoints of an older one exist, and do not count.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from ml_assets.errors import StorageError
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import CheckpointManifest, Claim, File
from ml_assets.store.objects import bytes_digest

MANIFEST = "manifest.json"
CLAIM = "attempt-"
"""What the name of a claim's file begins with."""
_NAME = re.compile(r"step-\d+\.a\d+")


class CheckpointStore(Protocol):
    """Named checkpoints of one session, each a flat folder of files.

    Every method raises ``StoreAway`` where the store does not answer or refuses us.
    """

    uri: str
    place: Path
    """The folder on this machine where files are written."""

    def names(self) -> tuple[str, ...]:
        """The names of everything there, whole or not, in no order."""
        ...

    def sizes(self, name: str) -> dict[str, int]:
        """File -> bytes."""
        ...

    def read(self, name: str, file: str) -> bytes | None:
        """A small file; None where there is none."""
        ...

    def draft(self, name: str) -> Path:
        """The folder on this machine where the files of a new checkpoint are written."""
        ...

    def put(self, name: str, files: Sequence[str]) -> None:
        """Files of the draft are there from here on; the checkpoint is not."""
        ...

    def collected(self, name: str, files: Sequence[File]) -> Path:
        """The draft, with those files of it that other machines put."""
        ...

    def commit(self, name: str, manifest: bytes) -> None:
        """The checkpoint exists from here on."""
        ...

    def fetch(self, name: str, files: Iterable[File]) -> Path:
        """A folder on this machine that holds the files, held to what the manifest says.

        Raises:
            StorageError: one is lost or damaged.
        """
        ...

    def release(self, name: str) -> None:
        """Forget what ``draft`` or ``fetch`` left on this machine besides the checkpoint itself."""
        ...

    def discard(self, name: str) -> None:
        """Delete a checkpoint, its manifest first: what is half deleted is not whole."""
        ...

    def claims(self) -> dict[int, bytes]:
        """Attempt -> what it claimed with."""
        ...

    def claim(self, attempt: int, record: bytes) -> None:
        """Claim the session for an attempt, in one step; a claim that is there stays."""
        ...


def claim_file(attempt: int) -> str:
    return f"{CLAIM}{attempt:06d}.json"


def claimed_by(file: str) -> int:
    """The attempt that a claim's file is of."""
    return int(file.removeprefix(CLAIM).removesuffix(".json"))


def checkpoint_name(step: int, attempt: int) -> str:
    return f"step-{step:06d}.a{attempt}"


def is_checkpoint(name: str) -> bool:
    """Return whether a folder's name is one that an attempt gives."""
    return _NAME.fullmatch(name) is not None


def attempt_of(name: str) -> int:
    return int(name.rpartition(".a")[2])


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint that counts: its manifest parses, and its files are as long as it says."""

    name: str
    manifest: CheckpointManifest
    digest: str
    """SHA-256 of the manifest."""


def last_claim(store: CheckpointStore) -> Claim | None:
    """The claim of the newest attempt; None: nobody claimed the session yet.

    Raises:
        StorageError: the claim is damaged.
    """
    claims = store.claims()
    if not claims:
        return None
    attempt = max(claims)
    try:
        return Claim.model_validate_json(claims[attempt])
    except ValidationError as error:
        raise StorageError(
            f"{store.uri}/{claim_file(attempt)} is damaged: {error}. Delete the session's"
            " checkpoints and train again."
        ) from error


def counts(name: str, claim: Claim | None) -> bool:
    """Return whether a checkpoint is of the newest attempt, or one that it found when it began.

    So an orphan of an older attempt can write nothing that counts, at whatever moment it was
    stopped and went on: what it seals is not in the list, which was written once.
    """
    if claim is None:
        return True
    return attempt_of(name) == claim.attempt or name in claim.accepted


def whole_checkpoints(store: CheckpointStore, session: str) -> list[FoundCheckpoint]:
    """The session's checkpoints that count, by step, then attempt; no checksum is computed."""
    claim = last_claim(store)
    read = (_found(store, name) for name in store.names() if counts(name, claim))
    found = [one for one in read if one is not None and one.manifest.session == session]
    return sorted(found, key=lambda one: (one.manifest.step, one.manifest.attempt))


def claim_session(store: CheckpointStore, session: str, attempt: int, *, resume: bool) -> None:
    """Claim the session: from here on this attempt writes, older ones do not. It may be repeated.

    Args:
        resume: it goes on from what is there; False: it begins anew, and nothing older counts.
    """
    older = [found.name for found in whole_checkpoints(store, session)] if resume else []
    accepted = tuple(name for name in older if attempt_of(name) < attempt)
    record = Claim(session=session, attempt=attempt, accepted=accepted)
    store.claim(attempt, canonical_json(record))


@dataclass(frozen=True)
class StoredSize:
    """Holds what lies at an address, for house-keeping."""

    files: int
    bytes: int
    changed: datetime


def _found(store: CheckpointStore, name: str) -> FoundCheckpoint | None:
    data = store.read(name, MANIFEST)
    if data is None:
        return None
    try:
        manifest = CheckpointManifest.model_validate_json(data)
    except ValidationError:
        return None
    sizes = store.sizes(name)
    if any(sizes.get(file.path) != file.size for file in manifest.files):
        return None
    return FoundCheckpoint(name, manifest, bytes_digest(data))
