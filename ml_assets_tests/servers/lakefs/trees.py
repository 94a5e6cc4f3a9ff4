"""What a commit holds, and the arithmetic on it: differences, three-dot comparison, merge.

Pure functions over trees (path to entry). Sides are compared by identity: what the bytes are and
what is said of them, never where they lie or when they were written.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ml_assets_tests.servers.lakefs.refusals import MergeConflict

Kind = Literal["added", "removed", "changed", "conflict"]


@dataclass(frozen=True)
class Entry:
    """One object at one path."""

    address: str
    """Where the bytes lie in the object store."""
    checksum: str
    """MD5 in hex, as an S3 ETag without its quotes."""
    size: int
    modified: int
    """Seconds since 1970."""
    content_type: str = "application/octet-stream"
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        return digest(self.size, self.checksum, dict(self.metadata), self.content_type)


Tree = Mapping[str, Entry]
Changes = Mapping[str, Entry | None]
"""What is staged; ``None`` is a removal."""


@dataclass(frozen=True)
class Change:
    kind: Kind
    path: str
    entry: Entry | None
    """The right side's entry; the left one's where it was removed."""

    @property
    def size(self) -> int:
        return self.entry.size if self.entry else 0


def digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def tree_id(tree: Tree) -> str:
    """The ``meta_range_id``: equal content has an equal one."""
    return digest(sorted((path, entry.identity) for path, entry in tree.items()))


def applied(tree: Tree, changes: Changes) -> dict[str, Entry]:
    """``tree`` with what is staged over it."""
    result = {path: entry for path, entry in tree.items() if path not in changes}
    result.update((path, entry) for path, entry in changes.items() if entry is not None)
    return result


def same(one: Entry | None, other: Entry | None) -> bool:
    if one is None or other is None:
        return one is other
    return one is other or one.identity == other.identity


def differences(left: Tree, right: Tree) -> Iterator[Change]:
    """From ``left`` to ``right``, in the order of the paths (two dots)."""
    for path in sorted({*left, *right}):
        before, after = left.get(path), right.get(path)
        if same(before, after):
            continue
        if before is None:
            yield Change("added", path, after)
        elif after is None:
            yield Change("removed", path, before)
        else:
            yield Change("changed", path, after)


def comparison(destination: Tree, source: Tree, base: Tree) -> Iterator[Change]:
    """What merging ``source`` would change in ``destination`` (three dots), conflicts named."""
    for change in differences(destination, source):
        origin = base.get(change.path)
        ours, theirs = destination.get(change.path), source.get(change.path)
        if same(theirs, origin):
            continue
        if same(ours, origin):
            yield change
        else:
            yield Change("conflict", change.path, change.entry)


def merged(destination: Tree, source: Tree, base: Tree, strategy: str = "") -> Tree:
    """Three ways, path by path.

    Raises:
        MergeConflict: both sides changed a path and no strategy says which one wins.
    """
    result = dict(destination)
    for change in comparison(destination, source, base):
        if change.kind == "conflict":
            if strategy == "dest-wins":
                continue
            if strategy != "source-wins":
                raise MergeConflict
        theirs = source.get(change.path)
        if theirs is None:
            result.pop(change.path, None)
        else:
            result[change.path] = theirs
    return result
