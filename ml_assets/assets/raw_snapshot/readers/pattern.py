"""Expands a source's ``path``: fixed folders, ``{fields}`` and wildcards."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ml_assets.spec.paths import FIELD, PARTITION, PARTITION_FIELD, S3

ANY_DEPTH = "**"
_PARTS = {
    "Y": "partition_year",
    "m": "partition_month",
    "d": "partition_day",
    "H": "partition_hour",
}
"""The fields that a partition's key is made of, where a path does not hold it as it is."""
_DIGITS = {name: r"\d{4}" if part == "Y" else r"\d{2}" for part, name in _PARTS.items()}
_WILD = re.compile(r"[*?{]")
_TOKEN = re.compile(r"\{([a-z][a-z0-9_]*)\}|(\*)|(\?)|([^*?{]+)")


@dataclass(frozen=True)
class Segment:
    """One part of a path between slashes."""

    text: str
    regex: re.Pattern[str] | None
    """None: the text itself, nothing else."""


@dataclass(frozen=True)
class Pattern:
    """A path with fields and wildcards, below a root or in a bucket.

    A wildcard or a field matches within one folder, and never a name that begins with a dot: that
    is how files that are still being written are named.
    """

    path: str
    given: Mapping[str, str]
    """Fields that are known already: they stand in ``path`` no more."""
    declared: str
    """The path before any field was filled in."""

    def at(self, **fields: str) -> "Pattern":
        """The same with these fields filled in."""
        path = self.path
        for name, value in {**fields, **_parts(fields.get("partition", ""))}.items():
            path = path.replace(f"{{{name}}}", value)
        return replace(self, path=path, given={**self.given, **fields})

    @property
    def below(self) -> str:
        """The path without its bucket."""
        return self.path.removeprefix(S3).partition("/")[2] if self.is_s3 else self.path

    @property
    def is_s3(self) -> bool:
        return self.path.startswith(S3)

    @property
    def bucket(self) -> str:
        return self.path.removeprefix(S3).partition("/")[0]

    @property
    def is_one_file(self) -> bool:
        return not _WILD.search(self.path)

    @cached_property
    def repeats(self) -> bool:
        """Return whether a field comes twice: its parts alone do not tell what matches."""
        named = fields_in(self.path)
        return len(named) > len(set(named))

    @property
    def prefix(self) -> str:
        """Return what every path begins with, up to the first field or wildcard."""
        return _WILD.split(self.below, maxsplit=1)[0]

    @property
    def folder(self) -> str:
        """The folders that are the same for every path."""
        return self.prefix.rpartition("/")[0]

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(_segment(text) for text in self.below.split("/"))

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        return _joined(self.segments)

    def fields(self, relative: str) -> dict[str, str] | None:
        """The fields of a path; None where the pattern does not stand for it."""
        found = self._whole.fullmatch(relative)
        return {**self.given, **_with_key(found.groupdict())} if found else None

    def fields_of_folder(self, relative: str) -> dict[str, str]:
        """The fields that the path of a folder tells already."""
        found = _joined(self.segments[: relative.count("/") + 1]).fullmatch(relative)
        return _with_key(found.groupdict()) if found else {}


def pattern_of(path: str) -> Pattern:
    """The pattern of a source's path."""
    return Pattern(PARTITION.sub(_in_parts, path), {}, path)


def _in_parts(found: re.Match[str]) -> str:
    """``{partition:%Y-%m}`` as a field for each of its parts."""
    written = found[1]
    if written is None:
        return PARTITION_FIELD
    return re.sub("%(.)", lambda part: f"{{{_PARTS[part[1]]}}}", written)


def _parts(key: str) -> dict[str, str]:
    """The parts of a partition's key."""
    places = zip(_PARTS.values(), (key[:4], key[5:7], key[8:10], key[11:13]), strict=True)
    return {name: value for name, value in places if value}


def _with_key(fields: dict[str, str]) -> dict[str, str]:
    """The fields of a path, the parts of a partition's key put together."""
    year, month, day, hour = (fields.get(name) for name in _PARTS.values())
    plain = {name: value for name, value in fields.items() if name not in _DIGITS}
    if year is None or month is None:
        return plain
    end = f"-{hour}:00" if hour else ""
    return {**plain, "partition": f"{year}-{month}-{day or '01'}{end}"}


def _joined(segments: Sequence[Segment]) -> re.Pattern[str]:
    parts = [
        r"(?:(?!\.)[^/]+/)*" if segment.text == ANY_DEPTH else f"{_regex(segment.text)}/"
        for segment in segments
    ]
    return re.compile(_once("".join(parts).removesuffix("/")))


def _segment(text: str) -> Segment:
    plain = not _WILD.search(text) or text == ANY_DEPTH
    return Segment(text, None if plain else re.compile(_once(_regex(text))))


def _regex(text: str) -> str:
    parts: list[str] = []
    for field, star, mark, plain in _TOKEN.findall(text):
        if field:
            parts.append(f"(?P<{field}>{_DIGITS.get(field, '[^/]+')})")
        else:
            parts.append("[^/]*" if star else "[^/]" if mark else re.escape(plain))
    hidden = "" if not _WILD.match(text) else r"(?!\.)"
    return hidden + "".join(parts)


def _once(regex: str) -> str:
    """A field that comes again has the same value there."""
    seen: set[str] = set()

    def again(found: re.Match[str]) -> str:
        name = found[1]
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return found[0]

    return re.sub(r"\(\?P<([a-z0-9_]+)>(?:\[\^/\]\+|\\d\{[24]\})\)", again, regex)


def fields_in(path: str) -> list[str]:
    """The names of the fields of a path, in order."""
    return FIELD.findall(path)
