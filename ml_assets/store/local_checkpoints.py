"""Opens a session's checkpoints at an address: a folder, or S3."""

import os
import shutil
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from ml_assets.settings import is_s3
from ml_assets.spec.training_program import File
from ml_assets.store.checkpoint_store import (
    CLAIM,
    MANIFEST,
    CheckpointStore,
    StoredSize,
    claim_file,
    claimed_by,
    is_checkpoint,
)
from ml_assets.store.objects import make_durable, verify, write_whole


class LocalCheckpoints:
    """The checkpoints of one session in a folder of this machine, or one that machines share."""

    def __init__(self, root: Path) -> None:
        self.uri = str(root)
        self.place = self._root = root

    def names(self) -> tuple[str, ...]:
        return tuple(path.name for path in self._root.glob("step-*") if is_checkpoint(path.name))

    def sizes(self, name: str) -> dict[str, int]:
        found = (self._root / name).iterdir() if (self._root / name).is_dir() else ()
        return {file.name: file.stat().st_size for file in found}

    def read(self, name: str, file: str) -> bytes | None:
        try:
            return (self._root / name / file).read_bytes()
        except FileNotFoundError:
            return None

    def draft(self, name: str) -> Path:
        folder = self._root / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def put(self, name: str, files: Sequence[str]) -> None:
        pass

    def collected(self, name: str, files: Sequence[File]) -> Path:
        return self._root / name

    def commit(self, name: str, manifest: bytes) -> None:
        folder = self._root / name
        write_whole(folder / MANIFEST, manifest)
        make_durable(folder, self._root)  # before older ones go

    def fetch(self, name: str, files: Iterable[File]) -> Path:
        verify(self._root / name, files)
        return self._root / name

    def release(self, name: str) -> None:
        pass

    def discard(self, name: str) -> None:
        (self._root / name / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(self._root / name, ignore_errors=True)

    def claims(self) -> dict[int, bytes]:
        files = self._root.glob(f"{CLAIM}*.json")
        return {claimed_by(file.name): file.read_bytes() for file in files}

    def claim(self, attempt: int, record: bytes) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        draft = self._root / f".{uuid.uuid4().hex}"
        write_whole(draft, record)
        try:
            os.link(draft, self._root / claim_file(attempt))  # whole at once, and only once
        except FileExistsError:
            return
        finally:
            draft.unlink()


def open_checkpoints(uri: str, scratch: Path | None = None) -> CheckpointStore:
    """The store that a folder or ``s3://bucket/prefix`` names.

    Args:
        scratch: folder for what is on its way to or from S3; None: nothing is written or fetched.

    Raises:
        SettingsError: S3 is asked for, and boto3 is not installed.
    """
    if is_s3(uri):
        from ml_assets.store.s3.checkpoints import S3Checkpoints

        return S3Checkpoints(uri, scratch)
    return LocalCheckpoints(Path(uri))


def stored_at(uri: str) -> StoredSize | None:
    """Return what a session's checkpoints take; None: there are none."""
    if is_s3(uri):
        from ml_assets.store.s3.checkpoints import stored_below

        return stored_below(uri)
    return _stored_in(Path(uri))


def discard_all(uri: str) -> None:
    """Delete a session's checkpoints, manifests first: what is half deleted is not whole."""
    if is_s3(uri):
        from ml_assets.store.s3.checkpoints import discard_below

        discard_below(uri)
        return
    for manifest in Path(uri).glob(f"*/{MANIFEST}"):
        manifest.unlink()
    shutil.rmtree(uri)


def _stored_in(folder: Path) -> StoredSize | None:
    """What lies in a folder, for house-keeping; None: nothing."""
    stats: list[os.stat_result] = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # whoever trains there deletes old ones
            stats += [path.stat()] if path.is_file() else []
    if not stats:
        return None
    changed = datetime.fromtimestamp(max(stat.st_mtime for stat in stats), UTC)
    return StoredSize(len(stats), sum(stat.st_size for stat in stats), changed)
