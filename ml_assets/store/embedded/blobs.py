"""Content-addressed files: a file's name is the SHA-256 of its bytes, and it appears by rename."""

import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ml_assets.errors import StorageError
from ml_assets.store.disk import told
from ml_assets.store.objects import file_digest
from ml_assets.store.snapshots import Collected

_DIGEST = re.compile("[0-9a-f]{64}")


class Blobs:
    """Files below one folder; any number of processes may write at once."""

    def __init__(self, root: Path) -> None:
        self._files = root / "objects"
        self._drafts = root / "drafts"
        self._verified: set[str] = set()
        with told(root):
            for folder in (self._files, self._drafts):
                folder.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        """Where a file lies; it need not exist.

        Raises:
            StorageError: it is no digest: no name leads out of the folder.
        """
        if not _DIGEST.fullmatch(digest):
            raise StorageError(f"{digest[:80]!r} is no digest of a stored file.")
        return self._files / digest[:2] / digest

    def write(self, data: bytes) -> str:
        """Store bytes and return their digest."""
        digest = hashlib.sha256(data).hexdigest()
        if not self.path(digest).exists():
            with self._drafted() as draft:
                with draft.open("wb") as handle:
                    handle.write(data)
                    _sync(handle)
                self._adopt(draft, digest)
        return digest

    def write_file(self, file: Path) -> tuple[str, int]:
        """Store a copy of a file; returns its digest and size."""
        with self._drafted() as draft:
            with file.open("rb") as source, draft.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
                _sync(target)
            digest, size = file_digest(draft), draft.stat().st_size
            self._adopt(draft, digest)
        return digest, size

    def read(self, digest: str, what: str) -> bytes:
        """Verified content; ``what`` names it in an error.

        Raises:
            StorageError: it is lost or damaged.
        """
        data = self._require(digest, what).read_bytes()
        self._check(digest, hashlib.sha256(data).hexdigest(), what)
        return data

    def verified(self, digest: str, what: str) -> Path:
        """The file, held to its digest once in the life of this object.

        Raises:
            StorageError: it is lost or damaged.
        """
        file = self._require(digest, what)
        if digest not in self._verified:
            self._check(digest, file_digest(file), what)
            self._verified.add(digest)
        return file

    def keep_only(self, kept: Container[str], *, dry_run: bool = False) -> Collected:
        """Delete every other file, and drafts of the dead. Nobody may be writing."""
        sizes: dict[bool, list[int]] = {True: [], False: []}
        for file in (*self._files.glob("*/*"), *self._drafts.iterdir()):
            keep = file.name in kept
            sizes[keep].append(file.stat().st_size)
            if not keep and not dry_run:
                file.unlink()
        return Collected(sum(sizes[False]), sum(sizes[True]))

    def _require(self, digest: str, what: str) -> Path:
        file = self.path(digest)
        if not file.is_file():
            raise StorageError(f"{what} is lost: {file} is not there. Make the asset again.")
        return file

    def _check(self, expected: str, found: str, what: str) -> None:
        if expected != found:
            raise StorageError(
                f"{what} is damaged: {self.path(expected)} has the checksum {found[:12]}, its"
                " name says otherwise. Delete the file and make the asset again."
            )

    @contextmanager
    def _drafted(self) -> Iterator[Path]:
        """A file to be adopted; what a full disk left of it goes."""
        draft = self._drafts / f"{os.getpid()}-{uuid.uuid4().hex}"
        try:
            with told(self._files.parent):
                yield draft
        finally:
            draft.unlink(missing_ok=True)

    def _adopt(self, draft: Path, digest: str) -> None:
        target = self.path(digest)
        target.parent.mkdir(exist_ok=True)
        os.replace(draft, target)
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sync(handle: IO[bytes]) -> None:
    handle.flush()
    os.fsync(handle.fileno())
