"""Reads files in a landing folder or a bucket: those of a partition, as rows or references.

The bytes of a file become rows by the parser of its format.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ml_assets.assets.raw_snapshot.readers.csv_format import parse_csv
from ml_assets.assets.raw_snapshot.readers.json_lines_format import (
    Batch,
    consume,
    parse_batches,
    parse_lines,
)
from ml_assets.assets.raw_snapshot.readers.listing import KEPT, ListedFile, Listing
from ml_assets.assets.raw_snapshot.readers.parquet_format import parse_parquet
from ml_assets.assets.raw_snapshot.readers.pattern import Pattern, pattern_of
from ml_assets.assets.raw_snapshot.readers.places import (
    Place,
    content,
    digest,
    newest_version,
    place_of,
    unpacked,
)
from ml_assets.assets.raw_snapshot.readers.references import read_references, reference_receipt
from ml_assets.assets.raw_snapshot.schema import Reading
from ml_assets.assets.raw_snapshot.text_values import TextFormat
from ml_assets.errors import SourceError, counted
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import EventsSource, FilesSource

PathSource = FilesSource | EventsSource
_EMPTY = (
    "A partition or table without rows is treated as a fault of its origin, not as data: deliver "
    "the file again."
)
_SHOWN = 3


@dataclass(frozen=True)
class Delivery:
    """The files of one partition, as they were listed."""

    name: str
    source: PathSource
    place: Place
    pattern: Pattern
    listing: Listing
    title: str
    """What messages begin with."""


def read_file(name: str, source: PathSource, root: Path, window: PartitionWindow | None) -> Reading:
    """Read one partition (or the whole table) as declared.

    Raises:
        SourceError: the folder or file is missing, empty, or does not hold what is declared.
    """
    if isinstance(source, FilesSource) and source.format == "binary":
        pattern = pattern_at(name, source, root, window)
        return read_references(source, place_of(name, pattern, root), pattern, _title(name, window))
    found = _delivered(name, source, root, window)
    raw = [content(found.place, file) for file in found.listing.files]
    digests = [hashlib.sha256(one).hexdigest() for one in raw]
    return Reading(_one_table(found, _parse(found, raw)), _receipt(found, digests))


def file_receipt(
    name: str, source: PathSource, root: Path, window: PartitionWindow | None
) -> dict[str, Any]:
    """Path, size and SHA-256 of the files (on S3: the ETag), without parsing them."""
    return receipt_of_delivery(_delivered(name, source, root, window))


def receipt_of_delivery(found: Delivery) -> dict[str, Any]:
    """The receipt that reading it would give now.

    Raises:
        SourceError: there is no file, too many, or one that is refused.
    """
    check_delivery(found)
    if is_binary(found.source):
        return reference_receipt(found.listing, found.pattern)
    if found.pattern.is_s3:
        return _receipt(found, [])
    return _receipt(found, [digest(found.place, file) for file in found.listing.files])


def check_delivery(found: Delivery) -> None:
    """Refuse a partition of which nothing can be read.

    Raises:
        SourceError: there is no file, too many, or one that is refused.
    """
    if found.listing.refused:
        raise SourceError(found.listing.refused)
    if not found.listing.count:
        raise _nothing(found)
    if found.listing.count > KEPT and not is_binary(found.source):
        raise SourceError(
            f"{found.title}: {counted(found.listing.count, 'file', 'are')} there for one partition;"
            f" at most {KEPT:,} files of rows are read. Merge them at their origin, or cut"
            " smaller partitions."
        )


def pattern_at(
    name: str, source: PathSource, root: Path, window: PartitionWindow | None
) -> Pattern:
    """The source's path for one partition, or as it is.

    Raises:
        SourceError: no version of a table that changes slowly was known when it began.
    """
    pattern = pattern_of(source.path)
    if window is None:
        return pattern
    if source.versioned:
        versions = newest_version(name, pattern, root, window.key)
        return pattern.at(version=versions)
    return pattern.at(partition=window.key)


def delivery(
    name: str, source: PathSource, root: Path, pattern: Pattern, title: str, listing: Listing
) -> Delivery:
    """A partition whose files were listed already."""
    return Delivery(name, source, place_of(name, pattern, root), pattern, listing, title)


def _delivered(
    name: str, source: PathSource, root: Path, window: PartitionWindow | None
) -> Delivery:
    pattern = pattern_at(name, source, root, window)
    place, listing = place_of(name, pattern, root), Listing()
    for found in place.list(pattern):
        listing.add(found)
    delivered = Delivery(name, source, place, pattern, listing, _title(name, window))
    check_delivery(delivered)
    return delivered


def _parse(found: Delivery, raw: Sequence[bytes]) -> list[pl.DataFrame]:
    """The declared columns of each file; events may be cut into files at any place."""
    source, files = found.source, found.listing.files
    if isinstance(source, FilesSource):
        return [
            _parse_file(source, file.path, one, _where(found, file))
            for file, one in zip(files, raw, strict=True)
        ]
    columns = dict(source.columns)
    if source.offset:
        columns[source.offset] = "int64"
    where = _where(found, files[0])
    if not any(one.strip() for one in raw):
        raise _empty(where, raw[0])
    if len(files) > 1:
        where = f"{found.title}: {found.place.title(found.pattern.path)}"
    batches = (  # one after the other: they are larger unpacked
        (unpacked(one, file.path, _where(found, file)), _where(found, file))
        for file, one in zip(files, raw, strict=True)
    )
    return parse_batches(batches, columns, where)


def _parse_file(source: FilesSource, path: str, raw: bytes, where: str) -> pl.DataFrame:
    """Parse the bytes of one file, unpacked if its name says so, into the declared columns.

    Args:
        where: the source and the file, as messages begin.

    Raises:
        SourceError: the file is empty, or does not hold what is declared.
    """
    if not raw.strip():
        raise _empty(where, raw)
    if source.format == "parquet":
        return parse_parquet(raw, source.columns, where)
    text = unpacked(raw, path, where)
    if source.format == "jsonl":
        return parse_lines(text, source.columns, where)
    nulls, written = source.null_values, TextFormat.of(source)
    return parse_csv(text, source.columns, nulls, where, source.dialect, written)


def _empty(where: str, raw: bytes) -> SourceError:
    return SourceError(f"{where} is empty ({len(raw)} bytes). {_EMPTY}")


def is_binary(source: PathSource) -> bool:
    return isinstance(source, FilesSource) and source.format == "binary"


def _one_table(found: Delivery, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    source, files = found.source, found.listing.files
    if isinstance(source, EventsSource) and source.offset:
        titles = [found.place.title(file.path) for file in files]
        batches = [
            Batch(frame, title) for frame, title in zip(frames, titles, strict=True) if frame.height
        ]
        whole = consume(batches, source.offset, found.title)
    else:
        whole = pl.concat(frames)
    if whole.is_empty():
        where = _where(found, files[0])
        raise SourceError(f"{where} has columns but no rows. {_EMPTY}")
    return whole


def _receipt(found: Delivery, digests: Sequence[str]) -> dict[str, Any]:
    """Plain and short however many files there are; on S3 their ETags stand for the content."""
    files = found.listing.files
    kind = "etag" if found.pattern.is_s3 else "sha256"
    values = [file.etag for file in files] if found.pattern.is_s3 else digests
    if len(files) == 1 and found.pattern.is_one_file:
        return {"path": files[0].path, "bytes": files[0].bytes, kind: values[0]}
    lines = [f"{file.path}\0{value}\n" for file, value in zip(files, values, strict=True)]
    return {
        "path": found.pattern.path,
        "files": len(files),
        "bytes": found.listing.bytes,
        "sha256": hashlib.sha256("".join(lines).encode()).hexdigest(),
    }


def _where(found: Delivery, file: ListedFile) -> str:
    return f"{found.title}: {found.place.title(file.path)}"


def _nothing(found: Delivery) -> SourceError:
    remedy = (
        f"Deliver the file, or correct 'path' ({found.source.path!r}) of this source in defs.yaml."
    )
    if found.pattern.is_s3 or not found.pattern.is_one_file:
        path = found.place.title(found.pattern.below)
        return SourceError(f"{found.title}: no file matches {path}. {remedy}")
    file = Path(found.place.title(found.pattern.path))
    return SourceError(f"{found.title}: there is no file {file}. {_neighbours(file)} {remedy}")


def _neighbours(file: Path) -> str:
    if not file.parent.is_dir():
        return f"Its folder {file.parent} does not exist either."
    names = sorted(p.name for p in file.parent.iterdir() if p.is_file() and p.name[0] != ".")
    if not names:
        return "Its folder is empty."
    nearest = sorted(names, key=lambda name: (name > file.name, name))
    earlier = [name for name in nearest if name <= file.name][-_SHOWN:]
    shown = ", ".join(earlier or names[:_SHOWN])
    return f"Its folder holds {counted(len(names), 'file')}, such as {shown}."


def _title(name: str, window: PartitionWindow | None) -> str:
    return f"{name} [{window.key}]" if window else name
