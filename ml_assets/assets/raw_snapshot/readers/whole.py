"""Whether a file is still being written: it is left alone until it is whole.

A file that nobody touched for a minute is taken as it is, and refused if it is not sound.
"""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ml_assets.assets.raw_snapshot.readers.listing import Found, Listing
from ml_assets.assets.raw_snapshot.readers.places import Folder
from ml_assets.assets.raw_snapshot.readers.places import content as content_of
from ml_assets.assets.raw_snapshot.readers.unpack import unpacked
from ml_assets.errors import SourceError
from ml_assets.spec.sources import EventsSource, FilesSource

QUIET = timedelta(minutes=1)
_PARQUET_END = b"PAR1"


def why_not_whole(
    folder: Folder,
    source: FilesSource | EventsSource,
    listing: Listing,
    now: datetime,
    since: datetime | None,
) -> str:
    """Why the files of a partition are left alone for now; empty where they may be read.

    Args:
        now: of this look.
        since: when these very sizes and times were seen first; None: nobody looks again.
    """
    if listing.refused or now - _time(listing.newest_ns) >= QUIET:
        return ""
    if since is not None and now - since >= QUIET:
        return ""
    if since is not None and since >= now:
        return (
            f"{_newest(listing)} changed less than a minute ago and was not like this at the last"
            " look; the next look tells whether it is still being written"
        )
    fresh = [f for f in listing.files if now - _time(f.modified_ns) < QUIET]
    return next(filter(None, (_unfinished(folder, source, found) for found in fresh)), "")


def _newest(listing: Listing) -> str:
    return next((f.path for f in listing.files if f.modified_ns == listing.newest_ns), "a file")


def _time(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)


def _unfinished(folder: Folder, source: FilesSource | EventsSource, found: Found) -> str:
    kind = "jsonl" if isinstance(source, EventsSource) else source.format
    if kind == "binary":
        return ""
    if found.path.endswith(".gz"):
        return _cut_gzip(folder, found)
    end = _tail(folder.root / found.path, len(_PARQUET_END))
    if kind == "parquet" and end != _PARQUET_END:
        return f"{found.path} has no footer yet"
    if kind != "parquet" and end[-1:] != b"\n":
        return f"{found.path} does not end with a line break yet"
    return ""


def _cut_gzip(folder: Folder, found: Found) -> str:
    try:
        unpacked(content_of(folder, found), found.path, found.path)
    except SourceError as error:
        cut = isinstance(error.__cause__, EOFError)
        return f"{found.path} is gzip that does not end yet" if cut else ""
    return ""


def _tail(file: Path, size: int) -> bytes:
    try:
        with file.open("rb") as content:
            content.seek(max(0, content.seek(0, os.SEEK_END) - size))
            return content.read()
    except OSError:
        return b""
