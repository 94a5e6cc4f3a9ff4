"""The content of a commit, path by path, and how work is laid over it: pure functions."""

from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from ml_assets.errors import StorageError
from ml_assets.store.objects import stays_below
from ml_assets.store.snapshots import Change, Entry

Tree = Mapping[str, tuple[str, int]]
"""Path -> (SHA-256, bytes)."""
Staged = Mapping[str, tuple[str, int] | None]
"""Path -> what it is to be; None: it is to be removed."""


def entries(tree: Tree, prefix: str) -> tuple[Entry, ...]:
    """Return what lies under a prefix, by path."""
    paths = sorted(path for path in tree if path.startswith(prefix))
    return tuple(Entry(path, *tree[path]) for path in paths)


def entry_at(tree: Tree, path: str, where: str) -> tuple[str, int]:
    """Digest and size of a file.

    Raises:
        StorageError: there is none.
    """
    entry = tree.get(path)
    if entry is None:
        raise StorageError(f"{where} has no {path}.")
    return entry


def changes(old: Tree, new: Tree) -> tuple[Change, ...]:
    """Return what ``new`` has differently, by path."""
    found = [Change(path, "added") for path in new.keys() - old.keys()]
    found += [Change(path, "removed") for path in old.keys() - new.keys()]
    found += [Change(p, "changed") for p in old.keys() & new.keys() if old[p] != new[p]]
    return tuple(sorted(found, key=lambda change: change.path))


def applied(tree: Tree, staged: Staged) -> dict[str, tuple[str, int]]:
    """The tree with the work in it."""
    merged = {**tree, **{path: entry for path, entry in staged.items() if entry is not None}}
    for path, entry in staged.items():
        if entry is None:
            merged.pop(path, None)
    return merged


def conflicts(
    staged: Staged, base: Tree, current: Tree, absent: Collection[str]
) -> tuple[str, ...]:
    """The paths of the work that somebody else changed since its base, otherwise.

    Args:
        absent: paths that must not be there yet.
    """
    return tuple(
        sorted(
            path
            for path, entry in staged.items()
            if current.get(path) != entry
            and (current.get(path) != base.get(path) or (path in absent and path in current))
        )
    )


def checked(path: str) -> str:
    """A path, if it is one.

    Raises:
        StorageError: it leads out of the store, or is written in another way than it is found.
    """
    if not stays_below(path) or path != PurePosixPath(path).as_posix():
        raise StorageError(
            f"{path!r} is not a path of a snapshot: relative, with '/' between, no '..'"
        )
    return path
