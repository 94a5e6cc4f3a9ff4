"""Checkpoints on S3: written on this machine, uploaded, and committed by the manifest's PUT."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from ml_assets.errors import StorageError, StoreAway
from ml_assets.spec.training_program import File
from ml_assets.store.checkpoint_store import (
    CLAIM,
    MANIFEST,
    StoredSize,
    claim_file,
    claimed_by,
    is_checkpoint,
)
from ml_assets.store.objects import is_whole, verify
from ml_assets.store.s3.client import S3Place


class S3Checkpoints:
    """The checkpoints of one session below ``s3://bucket/prefix``.

    Args:
        scratch: folder of this machine for what is on its way up or down.

    Raises:
        SettingsError: boto3 is not installed, or the address names no bucket.
    """

    def __init__(self, uri: str, scratch: Path | None) -> None:
        self._s3 = S3Place(uri)
        self.uri = self._s3.uri
        self.place = scratch or Path("nowhere")  # who has no scratch writes and fetches nothing

    def names(self) -> tuple[str, ...]:
        here = (folder.name for folder in self.place.glob("step-*"))  # left by one that was killed
        found = {*self._s3.folders("step-"), *here}
        return tuple(name for name in found if is_checkpoint(name))

    def sizes(self, name: str) -> dict[str, int]:
        begin = f"{name}/"
        return {item.name.removeprefix(begin): item.size for item in self._s3.items(begin)}

    def read(self, name: str, file: str) -> bytes | None:
        return self._s3.read(f"{name}/{file}")

    def draft(self, name: str) -> Path:
        folder = self.place / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def put(self, name: str, files: Sequence[str]) -> None:
        for file in files:
            self._s3.upload(f"{name}/{file}", self.place / name / file)

    def collected(self, name: str, files: Sequence[File]) -> Path:
        folder = self.draft(name)
        self._download(name, [file for file in files if not (folder / file.path).is_file()])
        return folder

    def commit(self, name: str, manifest: bytes) -> None:
        self._s3.write(f"{name}/{MANIFEST}", manifest)

    def fetch(self, name: str, files: Iterable[File]) -> Path:
        wanted = tuple(files)
        folder = self.draft(name)
        # a fetch that was broken off, or the save itself, may have left some here whole
        self._download(name, [file for file in wanted if not is_whole(folder, file)])
        try:
            verify(folder, wanted)
        except StorageError as error:
            self.release(name)
            raise StorageError(f"{self.uri}/{name}: {error}") from error
        return folder

    def release(self, name: str) -> None:
        shutil.rmtree(self.place / name, ignore_errors=True)

    def discard(self, name: str) -> None:
        self._s3.discard(f"{name}/{MANIFEST}")
        self._s3.discard_below(f"{name}/")
        self.release(name)

    def claims(self) -> dict[int, bytes]:
        names = [item.name for item in self._s3.items(CLAIM)]
        found = {name: self._s3.read(name) for name in names[-1:]}  # by name: the newest is last
        return {claimed_by(name): data for name, data in found.items() if data}

    def claim(self, attempt: int, record: bytes) -> None:
        self._s3.write_new(claim_file(attempt), record)

    def _download(self, name: str, files: Iterable[File]) -> None:
        folder = self.draft(name)
        for file in files:
            try:
                self._s3.download(f"{name}/{file.path}", folder / file.path)
            except StoreAway:
                raise
            except StorageError as error:
                raise StorageError(
                    f"{self.uri}/{name}/{file.path} is lost or damaged: its manifest names it."
                ) from error


def stored_below(uri: str) -> StoredSize | None:
    """Return what lies below an address."""
    found = list(S3Place(uri).items())
    if not found:
        return None
    changed = max(item.changed for item in found)
    return StoredSize(len(found), sum(item.size for item in found), changed)


def discard_below(uri: str) -> None:
    """All that lies below an address, manifests first, uploads that never ended included."""
    S3Place(uri).discard_below(first=[f"/{MANIFEST}"])
