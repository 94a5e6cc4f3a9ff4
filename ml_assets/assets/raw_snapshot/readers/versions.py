"""Tables that change slowly: dated versions, and the one that was known when a partition began."""

import re
from collections.abc import Iterable
from pathlib import Path

from ml_assets.assets.raw_snapshot.readers.pattern import Pattern
from ml_assets.assets.raw_snapshot.readers.places import place_of
from ml_assets.errors import SourceError
from ml_assets.spec.paths import VERSION_FIELD

_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")


def newest_version(name: str, pattern: Pattern, root: Path, partition: str) -> str:
    """The version that was known on the first day of a partition.

    Raises:
        SourceError: none was, or a file is named by something else than a date.
    """
    place = place_of(name, pattern, root)
    found = {version_of(name, pattern, file.path) for file in place.list(pattern)}
    known = known_at(found, partition)
    if known is None:
        path = place.title(pattern.below)
        first = f"; the first one is of {min(found)}" if found else ""
        raise SourceError(
            f"{name} [{partition}]: no version of {path} was known by then{first}. A partition"
            " never uses a later one: deliver the version that was in force, named by its date."
        )
    return known


def known_at(versions: Iterable[str], partition: str) -> str | None:
    """The newest of the dates that is not after the day a partition begins; None: there is none."""
    return max((version for version in versions if version <= partition[:10]), default=None)


def version_of(name: str, pattern: Pattern, path: str) -> str:
    """The date in a path.

    Raises:
        SourceError: it is none.
    """
    version = (pattern.fields(path) or {})[VERSION_FIELD[1:-1]]
    if not _DATE.fullmatch(version):
        raise SourceError(
            f"{name}: {path} is no version of the table: {version!r} is not a date, written"
            " 2013-01-31, from which on it is in force. Rename the file, or move it away."
        )
    return version
