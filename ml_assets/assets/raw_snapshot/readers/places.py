"""The places of a source's files, behind one small port: a folder of this machine, or a bucket."""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from ml_assets.assets.raw_snapshot.readers.listing import Found, Refusal, leads_out, list_local
from ml_assets.assets.raw_snapshot.readers.pattern import Pattern, pattern_of
from ml_assets.errors import SourceError

CHUNK = 1 << 20
MOST_BYTES = 2 << 30
"""A file of rows that is larger, as it is or unpacked, is refused: its rows go into memory."""


_AS_IT_IS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Place(Protocol):
    """A folder or a bucket, as far as a source reads it."""

    def list(self, pattern: Pattern) -> Iterator[Found | Refusal]: ...

    def chunks(self, found: Found) -> Iterator[bytes]:
        """The content as it was when it was listed; another one is a SourceError."""
        ...

    def title(self, path: str) -> str:
        """The path as a person finds it."""
        ...


def place_of(name: str, pattern: Pattern, root: Path) -> Place:
    """The place that a pattern leads to."""
    if pattern.is_s3:
        from ml_assets.assets.raw_snapshot.readers.s3 import Bucket

        return Bucket(name, pattern.bucket)
    return Folder(name, root)


@dataclass(frozen=True)
class Folder:
    """The folder that holds the sources."""

    name: str
    root: Path

    def list(self, pattern: Pattern) -> Iterator[Found | Refusal]:
        check_folder(self.name, pattern, self.root)
        return list_local(self.name, self.root, pattern)

    def chunks(self, found: Found) -> Iterator[bytes]:
        file, left = self.root / found.path, found.bytes
        try:
            with self.opened(found) as content:
                same = _is(found, os.fstat(content.fileno()))
                while same and (chunk := content.read(min(CHUNK, left + 1))):
                    yield chunk
                    left -= len(chunk)
                    same = left >= 0
            same = same and _is(found, file.stat())
        except OSError as error:
            raise SourceError(
                f"{self.name}: {file} cannot be read: {error.strerror}. A regular file that this"
                " user may read is expected there."
            ) from error
        if not same:
            raise SourceError(
                f"{self.name}: {file} changed while it was read: it is still being written. Try"
                " again when it is whole; write it under a name that begins with a dot, and rename"
                " it at the end."
            )

    def opened(self, found: Found) -> BinaryIO:
        """Open what was listed: no link that took its place leads out, no pipe waits for a writer.

        Raises:
            SourceError: it leads out of the folder.
            OSError: it cannot be opened.
        """
        file = self.root / found.path
        out = leads_out(self.name, file, self.root)
        if out:
            raise SourceError(out)
        return open(file.resolve(), "rb", opener=lambda path, how: os.open(path, how | _AS_IT_IS))

    def title(self, path: str) -> str:
        return str(self.root / path)


def _is(found: Found, state: os.stat_result) -> bool:
    """Whether it is the regular file that was listed."""
    now = (state.st_size, state.st_mtime_ns)
    return stat.S_ISREG(state.st_mode) and now == (found.bytes, found.modified_ns)


def check_folder(name: str, pattern: Pattern, root: Path) -> None:
    """Refuse a landing folder that is not there: it is not the same as one that is empty.

    Raises:
        SourceError: there is no root, or no such folder in it.
    """
    remedy = (
        "Set ML_ASSETS_SOURCES to the folder that holds the sources, or lay out the demo's:"
        " ml-assets demo"
    )
    if not root.is_dir():
        raise SourceError(
            f"{name}: ML_ASSETS_SOURCES is {root}, and there is no such folder. {remedy}"
        )
    folder = root / pattern_of(pattern.declared).folder
    if not folder.is_dir():
        raise SourceError(
            f"{name}: there is no landing folder {folder} (path {pattern.declared!r} below"
            f" ML_ASSETS_SOURCES, which is {root}). {remedy}"
        )


def digest(place: Place, found: Found) -> str:
    """SHA-256 of the content, chunk by chunk."""
    hasher = hashlib.sha256()
    for chunk in place.chunks(found):
        hasher.update(chunk)
    return hasher.hexdigest()


def content(place: Place, found: Found) -> bytes:
    """The whole content.

    Raises:
        SourceError: it is larger than ``MOST_BYTES``, or cannot be read.
    """
    title = place.title(found.path)
    if found.bytes > MOST_BYTES:
        raise SourceError(
            f"{title} has {found.bytes:,} bytes; a file of rows may have {MOST_BYTES:,}. Write"
            " smaller partitions, or several files for each (path: .../{partition}/*.csv)."
        )
    return b"".join(place.chunks(found))
