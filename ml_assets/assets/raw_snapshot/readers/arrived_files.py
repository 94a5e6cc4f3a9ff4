"""Looks at what a source holds now: which partitions are whole, and what each would be read as.

A look lists files and asks a database for counts; it reads again only what changed since the last.
A file that is still being written is left alone until it is whole. Where a look at all partitions
of a table would take too long, the newest are looked at each time and the others in turn.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from ml_assets.assets.raw_snapshot.readers.files import (
    PathSource,
    delivery,
    is_binary,
    receipt_of_delivery,
)
from ml_assets.assets.raw_snapshot.readers.listing import ListedFile, Listing, RefusedName
from ml_assets.assets.raw_snapshot.readers.look_cache import Seen
from ml_assets.assets.raw_snapshot.readers.pattern import Pattern, pattern_of
from ml_assets.assets.raw_snapshot.readers.places import (
    Folder,
    known_at,
    place_of,
    refused_field,
    unpacked,
    version_of,
)
from ml_assets.assets.raw_snapshot.readers.places import content as content_of
from ml_assets.errors import SourceError
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.paths import PARTITION_FIELD, VERSION_FIELD
from ml_assets.spec.sources import EventsSource, FilesSource

Key = str | None
QUIET = timedelta(minutes=1)
"""A file that nobody touched for so long is taken as it is, and refused if it is not sound."""
_PARQUET_END = b"PAR1"
_RACY_NS = 2_000_000_000
"""A file that changed so shortly before it was read may change again and show the same time."""


@dataclass(frozen=True)
class Looked:
    """Holds what one look found."""

    keys: tuple[Key, ...]
    """Partitions that are there and whole, in order; None: the table, where it is read whole."""
    waiting: Mapping[Key, str]
    """Partitions that are still being written, and how one sees it."""
    receipt: Callable[[Key], dict[str, Any]]
    """The receipt of one partition, as reading it would give it; SourceError if refused."""
    later: tuple[Key, ...] = ()
    """Partitions of which nothing is known before their turn to be looked at has come."""
    unasked: tuple[str, ...] = ()
    """What the names of the files say, in order, that are of no partition that was asked about."""


def look_at_files(
    name: str,
    source: PathSource,
    root: Path,
    partitions: Sequence[PartitionWindow] | None,
    seen: Seen | None,
    now: datetime,
) -> Looked:
    """List a source's files once, for all partitions.

    Args:
        partitions: those that are asked about; None exactly where the source has none.
        seen: what the look before found; None: everything is read anew.

    Raises:
        SourceError: the landing folder is missing, or the bucket does not answer.
    """
    pattern = pattern_of(source.path)
    listings = _listings(name, source, root, pattern, partitions)
    parts = _parts(source, pattern, partitions, listings)
    stamps = {_place(source, root, part.pattern): part.listing.stamp for part in parts.values()}
    since = seen.look(stamps, now) if seen else {}
    waiting: dict[Key, str] = {}
    if not pattern.is_s3:  # an object appears whole
        for key, part in parts.items():
            known = since.get(_place(source, root, part.pattern))
            said = _why_not_whole(Folder(name, root), source, part.listing, now, known)
            if said:
                waiting[key] = said

    def receipt(key: Key) -> dict[str, Any]:
        part = parts.get(key) or _Part(pattern, Listing())
        title = f"{name} [{key}]" if key else name
        found = delivery(name, source, root, part.pattern, title, part.listing)
        settled = now.timestamp() * 1e9 - part.listing.newest_ns > _RACY_NS
        place, stamp = _place(source, root, part.pattern), part.listing.stamp
        if seen is None or not (settled or part.pattern.is_s3):
            return receipt_of_delivery(found)
        kept = seen.receipt(place, stamp)
        if kept is None:
            kept = receipt_of_delivery(found)
            seen.keep(place, stamp, kept)
        return kept

    whole = tuple(key for key in parts if key not in waiting)
    others = () if source.versioned else sorted(key for key in listings if key and key not in parts)
    return Looked(whole, waiting, receipt, unasked=tuple(others))


@dataclass(frozen=True)
class _Part:
    pattern: Pattern
    listing: Listing


def _listings(
    name: str,
    source: PathSource,
    root: Path,
    pattern: Pattern,
    partitions: Sequence[PartitionWindow] | None,
) -> dict[Key, Listing]:
    """The files by what their names say: a partition, or a version."""
    listings: dict[Key, Listing] = {}
    for found in place_of(name, pattern, root).list(pattern):
        key = None if partitions is None else _cut(name, source, pattern, found)
        listings.setdefault(key, Listing()).add(found)
    return listings


def _parts(
    source: PathSource,
    pattern: Pattern,
    partitions: Sequence[PartitionWindow] | None,
    listings: Mapping[Key, Listing],
) -> dict[Key, _Part]:
    """The partitions of which there are files, in the order they were asked for."""
    if partitions is None:
        return {None: _Part(pattern, listings.get(None, Listing()))}
    if source.versioned:
        versions = {version: (version, listing) for version, listing in listings.items() if version}
        chosen = {w.key: versions.get(known_at(versions, w.key) or "") for w in partitions}
        return {
            key: _Part(pattern.at(version=part[0]), part[1]) for key, part in chosen.items() if part
        }
    return {
        window.key: _Part(pattern.at(partition=window.key), listings[window.key])
        for window in partitions
        if window.key in listings
    }


def _cut(name: str, source: PathSource, pattern: Pattern, found: ListedFile | RefusedName) -> str:
    """The partition, or version, that a file belongs to."""
    if isinstance(found, RefusedName):
        return refused_field(pattern, found, VERSION_FIELD if source.versioned else PARTITION_FIELD)
    if source.versioned:
        return version_of(name, pattern, found.path)
    return (pattern.fields(found.path) or {})[PARTITION_FIELD[1:-1]]


def _place(source: PathSource, root: Path, pattern: Pattern) -> str:
    """What is remembered of files as rows is not what is of the same files as references."""
    place = pattern.path if pattern.is_s3 else str(root / pattern.path)
    return f"{place} as references" if is_binary(source) else place


def _why_not_whole(
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
            f"{_newest(listing)} changed less than a minute ago and since the last check; the "
            "next check shows whether it is still being written"
        )
    fresh = [f for f in listing.files if now - _time(f.modified_ns) < QUIET]
    return next(filter(None, (_unfinished(folder, source, found) for found in fresh)), "")


def _newest(listing: Listing) -> str:
    return next((f.path for f in listing.files if f.modified_ns == listing.newest_ns), "a file")


def _time(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)


def _unfinished(folder: Folder, source: FilesSource | EventsSource, found: ListedFile) -> str:
    kind = "jsonl" if isinstance(source, EventsSource) else source.format
    if kind == "binary":
        return ""
    if found.path.endswith(".gz"):
        return _cut_gzip(folder, found)
    if not found.bytes:
        return f"{found.path} is empty"
    end = _tail(folder, found, len(_PARQUET_END))
    if kind == "parquet" and end != _PARQUET_END:
        return f"{found.path} has no footer yet"
    if kind != "parquet" and end[-1:] != b"\n":
        return f"{found.path} does not end with a line break yet"
    return ""


def _cut_gzip(folder: Folder, found: ListedFile) -> str:
    try:
        unpacked(content_of(folder, found), found.path, found.path)
    except SourceError as error:
        cut = isinstance(error.__cause__, EOFError)
        return f"{found.path} is gzip that does not end yet" if cut else ""
    return ""


def _tail(folder: Folder, found: ListedFile, size: int) -> bytes:
    try:
        with folder.opened(found) as content:
            content.seek(max(0, content.seek(0, os.SEEK_END) - size))
            return content.read(size)
    except (OSError, SourceError):
        return b""


def rows_receipt(
    frame: pl.DataFrame, watermark: str | None, window: PartitionWindow | None
) -> dict[str, Any]:
    """Independent of the order in which the rows come."""
    text = frame.sort(frame.columns).write_csv(quote_style="non_numeric")
    last = frame[watermark].max() if watermark else None
    return {
        "range": range_of(window),
        "rows": frame.height,
        "last": last.isoformat() if isinstance(last, datetime) else None,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def range_of(window: PartitionWindow | None) -> list[str] | None:
    """The span of time of a partition, as text; None: the whole table."""
    return [window.start.isoformat(), window.end.isoformat()] if window else None


NEWEST = 2
"""Partitions that are looked at each time: most late rows are of the period that has just ended."""
SECONDS = 5.0
"""A look begins no other partition after that: with a tick each 30 s, a sixth of the time."""
_NOTHING = ""
"""The stamp of a partition that is not there."""
_REFUSED = "refused"
"""Holds the message, in place of the receipt of a partition that could not be read."""


def look_in_turn(
    places: Mapping[Key, str],
    look: Callable[[Key], str | None],
    read: Callable[[Key], dict[str, Any]],
    seen: Seen,
    now: datetime,
) -> Looked:
    """Look at the partitions whose turn it is; return what is known of all.

    Args:
        places: what each is remembered by, the oldest first.
        look: its stamp, which changes when it does; None: it is not there.
        read: its receipt; asked where the stamp is new, and where it was refused.
    """
    before = seen.known(places.values())
    turns = {key: before[place].turn for key, place in places.items() if place in before}
    stamps: dict[str, str] = {}
    for key in _in_turn(tuple(places), turns):
        place = places[key]
        known, stamp = before.get(place), look(key) or _NOTHING
        stamps[place] = stamp
        receipt = known.receipt if known and known.stamp == stamp else None
        if stamp != _NOTHING and (receipt is None or _REFUSED in receipt):
            seen.pass_turn([place])  # first: if reading it ends the process, the next one follows
            seen.look({place: stamp}, now)
            seen.keep(place, stamp, _receipt_or_refusal(read, key))
    seen.look(stamps, now)
    seen.pass_turn(stamps)
    return _remembered(places, seen)


def _in_turn(keys: Sequence[Key], turns: Mapping[Key, int]) -> Iterator[Key]:
    """The keys to look at now: the newest, one of the others at least, and what time allows."""
    newest = reversed(keys[-NEWEST:])
    others = sorted(reversed(keys[:-NEWEST]), key=lambda key: turns.get(key, 0))
    end = time.monotonic() + SECONDS
    for number, key in enumerate((*newest, *others)):
        if number > NEWEST and time.monotonic() >= end:
            return
        yield key


def _receipt_or_refusal(read: Callable[[Key], dict[str, Any]], key: Key) -> dict[str, Any]:
    try:
        return read(key)
    except SourceError as error:
        return {_REFUSED: str(error)}


def _remembered(places: Mapping[Key, str], seen: Seen) -> Looked:
    known = seen.known(places.values())
    found = {key: known[place] for key, place in places.items() if place in known}
    receipts = {key: one.receipt for key, one in found.items() if one.receipt}
    absent = {key for key, one in found.items() if one.stamp == _NOTHING}

    def receipt(key: Key) -> dict[str, Any]:
        kept = dict(receipts[key])
        if _REFUSED in kept:
            raise SourceError(kept[_REFUSED])
        return kept

    later = tuple(key for key in places if key not in receipts and key not in absent)
    return Looked(tuple(receipts), {}, receipt, later)
