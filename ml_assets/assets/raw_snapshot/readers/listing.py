"""Lists the files at a source's path: each one's name, size and age, without opening it; and finds
how far data has arrived."""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from ml_assets.assets.raw_snapshot.readers.pattern import ANY_DEPTH, Pattern, Segment, pattern_of
from ml_assets.errors import SourceError
from ml_assets.spec.partitions import windows
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.sources import EventsSource, FilesSource

KEPT = 10_000
"""Files of one partition that are remembered one by one; beyond, only what they sum up to."""


class ListedFile(NamedTuple):
    """A file or object, as its folder or bucket lists it."""

    path: str
    """Relative to the root, or the key in the bucket."""
    bytes: int
    modified_ns: int
    etag: str
    """Changes with the content. Here: size and times, as web servers make it; on S3 its own."""


class RefusedName(NamedTuple):
    """A name that is there, and why nothing is read from it."""

    path: str
    said: str


@dataclass
class Listing:
    """The files of one partition, summed up: memory does not grow with their number."""

    files: list[ListedFile] = field(default_factory=list)
    """In the order of their paths; the first ones only, see ``KEPT``."""
    count: int = 0
    bytes: int = 0
    newest_ns: int = 0
    refused: str = ""
    """Why none of them is read."""
    _digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def add(self, found: ListedFile | RefusedName) -> None:
        if isinstance(found, RefusedName):
            self.refused = self.refused or found.said
            self._digest.update(f"{found}\n".encode("utf-8", "backslashreplace"))
            return
        if self.count < KEPT:
            self.files.append(found)
        self.count += 1
        self.bytes += found.bytes
        self.newest_ns = max(self.newest_ns, found.modified_ns)
        self._digest.update(f"{found.path}\0{found.bytes}\0{found.etag}\n".encode())

    @property
    def stamp(self) -> str:
        """Equal while no file came, went or changed."""
        return self._digest.hexdigest()


def list_local(name: str, root: Path, pattern: Pattern) -> Iterator[ListedFile | RefusedName]:
    """The files that a pattern stands for, folder by folder, each folder in order.

    Raises:
        SourceError: a fixed folder of the path leads out of ``root``, or cannot be listed.
    """
    try:
        for found in _Walk(name, root).below("", pattern.segments):
            if not pattern.repeats or pattern.fields(found.path) is not None:
                yield found
    except OSError as error:
        raise SourceError(_unreadable(name, error.filename or root, error)) from error


def find_local(root: Path, path: str) -> ListedFile | None:
    """A file as its folder lists it now; None: it is not there."""
    try:
        return _found(path, (root / path).stat())
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class _Walk:
    name: str
    root: Path

    def below(self, folder: str, segments: Sequence[Segment]) -> Iterator[ListedFile | RefusedName]:
        head, rest = segments[0], segments[1:]
        if head.text == ANY_DEPTH:
            yield from self.below(folder, rest)
            for entry in self._entries(folder):
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    yield from self.below(f"{folder}{entry.name}/", segments)
        elif head.regex is None and rest:
            yield from self.below(f"{folder}{head.text}/", rest)
        elif head.regex is None:
            yield from self._file(f"{folder}{head.text}")
        else:
            for entry in self._entries(folder):
                if head.regex.fullmatch(entry.name):
                    yield from self._entry(f"{folder}{entry.name}", entry, rest)

    def _entry(
        self, path: str, entry: "os.DirEntry[str]", rest: Sequence[Segment]
    ) -> Iterator[ListedFile | RefusedName]:
        odd = odd_text(self.name, path) or (
            entry.is_symlink() and leads_out(self.name, entry.path, self.root)
        )
        if odd:
            yield RefusedName(path, odd)
        elif rest and entry.is_dir():
            yield from self.below(f"{path}/", rest)
        elif not rest and entry.is_file():
            with suppress(FileNotFoundError):  # taken away meanwhile
                yield _found(path, entry.stat())

    def _file(self, path: str) -> Iterator[ListedFile | RefusedName]:
        place = self.root / path
        if not os.path.lexists(place):
            return
        out = leads_out(self.name, place, self.root)
        if out:
            yield RefusedName(path, out)
            return
        try:
            state = place.stat()
        except OSError as error:
            yield RefusedName(path, _unreadable(self.name, place, error))
            return
        whole = stat.S_ISREG(state.st_mode)
        said = f"{self.name}: {place} is not a regular file, and one is expected there."
        yield _found(path, state) if whole else RefusedName(path, said)

    def _entries(self, folder: str) -> "list[os.DirEntry[str]]":
        place = self.root / folder
        if not place.is_dir():
            return []
        out = leads_out(self.name, place, self.root)
        if out:
            raise SourceError(out)
        try:
            with os.scandir(place) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise SourceError(_unreadable(self.name, place, error)) from error


def leads_out(name: str, place: Path | str, root: Path) -> str:
    """Return what is wrong with a link that leads out of the root; empty where it does not."""
    try:
        if Path(place).resolve().is_relative_to(root.resolve()):
            return ""
    except (OSError, RuntimeError):  # links that lead in a circle
        return f"{name}: {place} cannot be followed to its end. Put the file itself there."
    return (
        f"{name}: {place} is a symbolic link that leads out of {root}. Put the file itself there."
    )


def _unreadable(name: str, place: Path | str, error: OSError) -> str:
    return (
        f"{name}: {place} cannot be read: {error.strerror}. A regular file, or a folder that this"
        " user may list, is expected there."
    )


def _found(path: str, state: os.stat_result) -> ListedFile:
    etag = f"{state.st_size:x}-{state.st_mtime_ns:x}"
    return ListedFile(path, state.st_size, state.st_mtime_ns, etag)


def odd_text(name: str, path: str) -> str:
    """Return what is wrong with a name that is not plain text; empty where nothing is."""
    if path.isascii() and path.isprintable():
        return ""
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"{name}: the name {path!r} is not UTF-8. Rename the file at its origin."
    if path.isprintable():
        return ""
    return (
        f"{name}: the name {path!r} holds characters that cannot be displayed. Rename the file at"
        " its origin."
    )


def odd_key(name: str, key: str) -> str:
    """Return what is wrong with the name of an object that is no path below its prefix."""
    if any(part in ("", ".", "..") for part in key.split("/")) or "\\" in key:
        return (
            f"{name}: the name of the object {key!r} is not a safe path: it has an empty part, '.',"
            " '..' or a backslash. Rename it at its origin."
        )
    return odd_text(name, key)


def arrived_until(spec: PipelineSpec, root: Path, now: datetime) -> date | None:
    """The day on which the newest partition ends that a folder below ``root`` holds.

    None where that is not for us to say: ``partitions.end`` has not passed, no partitioned source
    is a folder here, nothing has arrived, or a folder has a gap, which everybody should see.
    """
    calendar = spec.partitions
    zone = ZoneInfo(calendar.timezone)
    if calendar.end is None or calendar.cadence == "hourly":  # it ends with a day, hours do not
        return None
    if now < datetime.combine(calendar.end, time(), zone):
        return None
    known = windows(calendar, now)
    newest = 0
    for name, pattern in _folders(spec):
        there = [_holds(name, pattern.at(partition=window.key), root) for window in known]
        arrived = sum(there)
        if not all(there[:arrived]):
            return None
        newest = max(newest, arrived)
    return known[newest - 1].end.astimezone(zone).date() if newest else None


def _folders(spec: PipelineSpec) -> Iterator[tuple[str, Pattern]]:
    for name, source in spec.sources.items():
        if isinstance(source, FilesSource | EventsSource) and source.partitioned:
            pattern = pattern_of(source.path)
            if not pattern.is_s3 and not source.versioned:
                yield name, pattern


def _holds(name: str, pattern: Pattern, root: Path) -> bool:
    try:
        return any(isinstance(found, ListedFile) for found in list_local(name, root, pattern))
    except SourceError:  # reading it says why
        return False
