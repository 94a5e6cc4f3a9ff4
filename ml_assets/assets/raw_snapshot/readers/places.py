"""The places of a source's files, behind one small port: a folder of this machine, or a bucket.

Dated versions of a table are found here, and gzip is unpacked no further than an honest file needs.
"""

import gzip
import hashlib
import io
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from ml_assets.assets.raw_snapshot.readers.listing import (
    ListedFile,
    RefusedName,
    leads_out,
    list_local,
)
from ml_assets.assets.raw_snapshot.readers.pattern import Pattern, pattern_of
from ml_assets.errors import SourceError, did_you_mean, quoted
from ml_assets.spec.paths import VERSION_FIELD

CHUNK = 1 << 20
MOST_BYTES = 2 << 30
"""A file of rows that is larger, as it is or unpacked, is refused: its rows go into memory."""


_AS_IT_IS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Place(Protocol):
    """A folder or a bucket, as far as a source reads it."""

    def list(self, pattern: Pattern) -> Iterator[ListedFile | RefusedName]: ...

    def chunks(self, found: ListedFile) -> Iterator[bytes]:
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

    def list(self, pattern: Pattern) -> Iterator[ListedFile | RefusedName]:
        check_folder(self.name, pattern, self.root)
        return list_local(self.name, self.root, pattern)

    def chunks(self, found: ListedFile) -> Iterator[bytes]:
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
                f"{self.name}: {file} changed while it was read: it is still being written. Try "
                "again when it is complete; write it under a name that begins with a dot, and "
                "rename it at the end."
            )

    def opened(self, found: ListedFile) -> BinaryIO:
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


def _is(found: ListedFile, state: os.stat_result) -> bool:
    """Whether it is the regular file that was listed."""
    now = (state.st_size, state.st_mtime_ns)
    return stat.S_ISREG(state.st_mode) and now == (found.bytes, found.modified_ns)


def check_folder(name: str, pattern: Pattern, root: Path) -> None:
    """Refuse a landing folder that is not there: it is not the same as one that is empty.

    Raises:
        SourceError: there is no root, or no such folder in it.
    """
    if not root.is_dir():
        raise SourceError(
            f"{name}: ML_ASSETS_SOURCES is {root}, and there is no such folder. Set it to the"
            " folder that holds the sources, or lay out the demo's: ml-assets demo"
        )
    folder = root / pattern_of(pattern.declared).folder
    if not folder.is_dir():
        there = folder.parent
        near = [one.name for one in there.iterdir() if one.is_dir()] if there.is_dir() else []
        raise SourceError(
            f"{name}: there is no landing folder {folder} (path {pattern.declared!r} below"
            f" ML_ASSETS_SOURCES, which is {root}).{did_you_mean(folder.name, near)} Correct 'path'"
            " of this source in defs.yaml, or set ML_ASSETS_SOURCES; ml-assets demo lays out the"
            " demo's."
        )


def digest(place: Place, found: ListedFile) -> str:
    """SHA-256 of the content, chunk by chunk."""
    hasher = hashlib.sha256()
    for chunk in place.chunks(found):
        hasher.update(chunk)
    return hasher.hexdigest()


def content(place: Place, found: ListedFile) -> bytes:
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


RATIO = 100
"""Text shrinks to a tenth, seldom to a thirtieth; what shrinks more is no text."""
_ALLOWED = 64 << 20
"""Bytes that any file may unpack to, whatever its ratio."""
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"


def allowed(packed: int, at_least: int = _ALLOWED) -> int:
    """Bytes that so many packed ones may become."""
    return min(MOST_BYTES, max(at_least, RATIO * packed))


def unpacked(content: bytes, path: str, where: str) -> bytes:
    """The text of a file: unpacked where its name ends in ``.gz``, else as it is.

    Raises:
        SourceError: it is cut off, damaged, or grows beyond every measure; or it is an archive.
    """
    if content.startswith(_ZIP):
        raise SourceError(f"{where} is a ZIP archive. Deliver the file itself, or gzip (.gz).")
    if not path.endswith(".gz"):
        if content.startswith(_GZIP):
            raise SourceError(f"{where} is gzip, and its name does not say so: end it in .gz.")
        return content
    bound = allowed(len(content))
    parts: list[bytes] = []
    size = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            while part := packed.read(CHUNK):
                size += len(part)
                if size > bound:
                    raise SourceError(
                        f"{where}: {len(content):,} bytes of gzip unpack to more than {bound:,}"
                        " bytes, the limit for a file of this size. If the content is right,"
                        " deliver it uncompressed."
                    )
                parts.append(part)
    except EOFError as error:
        raise SourceError(
            f"{where} is cut off: its gzip does not end. Deliver the complete file again."
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise SourceError(
            f"{where} is not complete gzip: {quoted(error)}. Deliver it again."
        ) from error
    return b"".join(parts)


_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")


def newest_version(name: str, pattern: Pattern, root: Path, partition: str) -> str:
    """The version that was known on the first day of a partition.

    Raises:
        SourceError: none was, or a file is named by something else than a date.
    """
    place = place_of(name, pattern, root)
    found = {
        refused_field(pattern, file, VERSION_FIELD)
        if isinstance(file, RefusedName)
        else version_of(name, pattern, file.path)
        for file in place.list(pattern)
    }
    known = known_at(found, partition)
    if known is None:
        path = place.title(pattern.below)
        first = f"; the first one is of {min(found)}" if found else ""
        raise SourceError(
            f"{name} [{partition}]: no version of {path} was known by then{first}. A partition "
            "never uses a later one: deliver the version that was valid then, named by its date."
        )
    return known


def known_at(versions: Iterable[str], partition: str) -> str | None:
    """The newest of the dates that is not after the day a partition begins; None: there is none."""
    return max((version for version in versions if version <= partition[:10]), default=None)


def refused_field(pattern: Pattern, found: RefusedName, field: str) -> str:
    """The version or the partition of a name, of a folder perhaps, that is not read.

    Raises:
        SourceError: the name does not tell it.
    """
    fields = pattern.fields(found.path) or pattern.fields_of_folder(found.path)
    value = fields.get(field[1:-1])
    if value is None:
        raise SourceError(found.said)
    return value


def version_of(name: str, pattern: Pattern, path: str) -> str:
    """The date in a path.

    Raises:
        SourceError: it is none.
    """
    version = (pattern.fields(path) or {})[VERSION_FIELD[1:-1]]
    if not _DATE.fullmatch(version):
        raise SourceError(
            f"{name}: {path} is not a version of the table: {version!r} is not a date such as"
            " 2013-01-31, the day from which it is valid. Rename the file, or move it away."
        )
    return version
