"""Takes files in by reference: one row each, from their folder's listing and their path."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from ml_assets.assets.raw_snapshot.readers.listing import (
    ListedFile,
    Listing,
    RefusedName,
    find_local,
)
from ml_assets.assets.raw_snapshot.readers.pattern import Pattern, fields_in, pattern_of
from ml_assets.assets.raw_snapshot.readers.places import Place, digest, place_of
from ml_assets.assets.raw_snapshot.schema import TYPES, Reading, type_text
from ml_assets.errors import SourceError
from ml_assets.spec.sources import FilesSource

_AT_ONCE = 50_000
"""Files that are Python objects at the same time; the rest are columns already."""


def read_references(source: FilesSource, place: Place, pattern: Pattern, where: str) -> Reading:
    """The table of the files that a pattern stands for; no content is read but for ``sha256``.

    Raises:
        SourceError: a name cannot be taken, or a field of a path is not of its type.
    """
    listing, frames = Listing(), []
    for some in _chunks(place.list(pattern)):
        for found in some:
            listing.add(found)
        if listing.refused:
            raise SourceError(listing.refused)
        files = [found for found in some if isinstance(found, ListedFile)]
        frames.append(_frame(files, source, place, pattern, where))
    if not frames:
        raise SourceError(
            f"{where}: no file is there. Deliver the files, or correct 'path' ({source.path!r}) of"
            " this source in defs.yaml."
        )
    return Reading(pl.concat(frames), reference_receipt(listing, pattern))


def reference_receipt(listing: Listing, pattern: Pattern) -> dict[str, Any]:
    """Equal while no file came, went or changed."""
    return {
        "path": pattern.path,
        "files": listing.count,
        "bytes": listing.bytes,
        "sha256": listing.stamp,
    }


class ReferredFiles:
    """Files, by what their table says of them.

    Args:
        name: messages begin with it.
        root: folder that relative paths start from (ML_ASSETS_SOURCES).
    """

    def __init__(self, name: str, root: Path) -> None:
        self._name, self._root = name, root
        self._places: dict[str, Place] = {}

    def read(self, path: str, etag: str) -> bytes:
        """The whole content.

        Raises:
            SourceError: it is gone, or is another one than when its table was made.
        """
        pattern = pattern_of(path)
        bucket = pattern.bucket if pattern.is_s3 else ""
        place = self._places.get(bucket)
        if place is None:
            place = self._places[bucket] = place_of(self._name, pattern, self._root)
        found = ListedFile(pattern.below, 0, 0, etag) if bucket else self._here(path, etag)
        return b"".join(place.chunks(found))

    def _here(self, path: str, etag: str) -> ListedFile:
        found = find_local(self._root, path)
        if found is not None and found.etag == etag:
            return found
        said = "is no longer there" if found is None else "has other content now"
        raise SourceError(
            f"{self._name}: {self._root / path} {said}: its etag was {etag!r} when its table was"
            " made. Deliver that file again, or materialize raw_snapshot again."
        )


def _chunks(found: Iterator[ListedFile | RefusedName]) -> Iterator[list[ListedFile | RefusedName]]:
    while some := list(itertools.islice(found, _AT_ONCE)):
        yield some


def _frame(
    files: Sequence[ListedFile], source: FilesSource, place: Place, pattern: Pattern, where: str
) -> pl.DataFrame:
    tells: dict[str, Callable[[ListedFile], object]] = {
        "path": lambda found: place.title(found.path) if pattern.is_s3 else found.path,
        "bytes": lambda found: found.bytes,
        "modified": lambda found: found.modified_ns // 1000,
        "etag": lambda found: found.etag,
        "sha256": lambda found: digest(place, found),
    }
    parsed = [name for name in fields_in(source.path) if name in source.columns]
    said = _fields(files, pattern, {n: source.columns[n] for n in parsed}, where)
    columns = {
        name: said[name]
        if name in parsed
        else pl.Series(name, [tells[name](found) for found in files]).cast(TYPES[dtype])
        for name, dtype in source.columns.items()
    }
    return pl.DataFrame(columns)


def _fields(
    files: Sequence[ListedFile], pattern: Pattern, declared: dict[str, Any], where: str
) -> pl.DataFrame:
    if not declared:
        return pl.DataFrame()
    rows = [pattern.fields(found.path) or {} for found in files]
    texts = {name: [row.get(name) for row in rows] for name in declared}
    frame = pl.DataFrame(texts, schema=dict.fromkeys(declared, pl.String))
    return type_text(frame, declared).required(where, lambda row: f"the file {files[row].path}")
