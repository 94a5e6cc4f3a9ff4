"""Content-addressed files: a file's name is the SHA-256 of its bytes, and it appears by rename."""

import hashlib
import os
import re
import uuid
from collections.abc import Collection, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ml_assets.errors import StorageError
from ml_assets.store.disk import disk_errors
from ml_assets.store.objects import file_digest, make_durable
from ml_assets.store.snapshots import Collected

_DIGEST = re.compile("[0-9a-f]{64}")
_DRAFT = re.compile("[0-9]+-[0-9a-f]{32}")
_CHUNK = 1 << 20
_SYNCS = 8
"""Files that are synced side by side: what waits for the disk together waits once."""


@dataclass(frozen=True)
class Staged:
    """Content that is about to become a file of the store."""

    digest: str
    size: int
    draft: Path | None
    """Where it lies until then; None: there is such a file."""


class Blobs:
    """Files below one folder; any number of processes may write at once."""

    def __init__(self, root: Path) -> None:
        self._files = root / "objects"
        self._drafts = root / "drafts"
        self._verified: set[str] = set()
        with disk_errors(root):
            for folder in (self._files, self._drafts):
                folder.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        """Return where a file lies; it need not exist.

        Raises:
            StorageError: it is no digest: no name leads out of the folder.
        """
        if not _DIGEST.fullmatch(digest):
            raise StorageError(f"{digest[:80]!r} is not the digest of a stored file.")
        return self._files / digest[:2] / digest

    def write(self, data: bytes) -> str:
        """Store bytes and return their digest."""
        staged = self.stage(data)
        self.adopt([staged])
        return staged.digest

    def stage(self, content: bytes | Path) -> Staged:
        """Copy bytes or a file into a draft: no file of the store, and perhaps not on the disk."""
        if isinstance(content, bytes):
            digest = hashlib.sha256(content).hexdigest()
            if self.path(digest).exists():
                return Staged(digest, len(content), None)
        draft = self._drafts / f"{os.getpid()}-{uuid.uuid4().hex}"
        try:
            with disk_errors(self._files.parent):
                return Staged(*_copied(content, draft), draft)
        except BaseException:  # what a full disk left of it goes
            draft.unlink(missing_ok=True)
            raise

    def adopt(self, staged: Collection[Staged]) -> None:
        """Make drafts files of the store, all at once: the disk has each before it has its name."""
        drafts = {one.draft: self.path(one.digest) for one in staged if one.draft is not None}
        try:
            with disk_errors(self._files.parent):
                _sync(drafts)
                for draft, target in drafts.items():
                    target.parent.mkdir(exist_ok=True)
                    os.replace(draft, target)
                _sync({target.parent for target in drafts.values()})
        finally:
            self.drop(staged)

    def drop(self, staged: Iterable[Staged]) -> None:
        """Delete the drafts that are there."""
        for one in staged:
            if one.draft is not None:
                one.draft.unlink(missing_ok=True)

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

    def keep_only(self, kept: Container[str], *, dry_run: bool) -> Collected:
        """Delete every other file, and drafts of the dead. Nobody may be writing.

        What we did not make stays: it may lie behind a link that somebody laid.
        """
        sizes: dict[bool, list[int]] = {True: [], False: []}
        drafts = (one for one in self._drafts.iterdir() if _DRAFT.fullmatch(one.name))
        for file in (*self._stored(), *drafts):
            keep = file.name in kept
            sizes[keep].append(file.stat().st_size)
            if not keep and not dry_run:
                file.unlink()
        return Collected(sum(sizes[False]), sum(sizes[True]))

    def _stored(self) -> Iterator[Path]:
        for folder in self._files.iterdir():
            if folder.is_symlink() or not folder.is_dir():
                continue
            for file in folder.iterdir():
                if _DIGEST.fullmatch(file.name) and file.is_file() and not file.is_symlink():
                    yield file

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


def _copied(content: bytes | Path, draft: Path) -> tuple[str, int]:
    """Write a draft; its digest and size."""
    digest, size = hashlib.sha256(), 0
    with draft.open("wb") as target:
        for part in [content] if isinstance(content, bytes) else _parts(content):
            digest.update(part)
            size += target.write(part)
    return digest.hexdigest(), size


def _parts(file: Path) -> Iterable[bytes]:
    with file.open("rb") as source:
        while part := source.read(_CHUNK):
            yield part


def _sync(paths: Collection[Path]) -> None:
    if len(paths) == 1:
        make_durable(*paths)
    elif paths:
        list(_threads(os.getpid()).map(make_durable, paths))


@lru_cache(maxsize=1)
def _threads(_process: int) -> ThreadPoolExecutor:
    """Of this process: a fork has none of its parent's."""
    return ThreadPoolExecutor(_SYNCS, "sync")
