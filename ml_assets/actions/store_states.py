"""Names states of the snapshot store, lists their content, and compares them.

A name is ``main``, ``main~2`` (two states before), a tag (``irises-release-3``; ``release-3`` if
one pipeline has it), a day (``2026-11-17``: as it was at its end, UTC), or the first six characters
of a commit.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Literal

from ml_assets.errors import SettingsError, StorageError
from ml_assets.spec.records import StageRecord
from ml_assets.store.objects import LocalObjects
from ml_assets.store.snapshots import MAIN, Commit, CommitId, SnapshotStore

_TABLES, _RECORDS = "tables/", "records/"
_BEFORE = re.compile(rf"{MAIN}~(\d{{1,6}})")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_HEX = re.compile(r"[0-9a-f]{6,64}")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_TOLD = re.compile(r".*release-\d+(-input-\d+)?")
"""The names that the ledger gives."""


@dataclass(frozen=True)
class SnapshotState:
    """One state of ``main``."""

    commit: CommitId
    names: tuple[str, ...]
    """Its tags, and ``main`` where it is the newest."""
    time: datetime
    message: str


@dataclass(frozen=True)
class MadeTable:
    """Holds what was made of one (asset, partition) in a state."""

    key: str
    partition: str | None
    version: str
    rows: int | None
    time: datetime
    bytes: int
    """Bytes of its files in the snapshot store; shards and models lie elsewhere."""


@dataclass(frozen=True)
class Difference:
    """One (asset, partition) that two states hold differently."""

    key: str
    partition: str | None
    kind: Literal["added", "removed", "changed"]
    rows_before: int | None
    rows_after: int | None


def known_state(store: SnapshotStore, said: str) -> CommitId | None:
    """The commit that somebody means; None: it is no name of a state, or one of several."""
    tags = store.tags()
    if said == MAIN or said in tags:
        return store.resolve(said)
    ending = [name for name in tags if name.endswith(f"-{said}")]
    found = ending[0] if len(ending) == 1 else _told_by_history(store, said)
    return None if found is None else store.resolve(found)


def find_state(store: SnapshotStore, said: str) -> CommitId:
    """The commit that somebody means.

    Raises:
        StorageError: it is no name of a state; names what is near.
    """
    found = known_state(store, said)
    if found is not None:
        return found
    tags = store.tags()
    ending = [name for name in tags if name.endswith(f"-{said}")]
    near = ending or get_close_matches(said, tags, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise StorageError(
        f"{said!r} is not the name of a state of the data.{hint} A name is {MAIN}, {MAIN}~2, a "
        "tag (see ml-assets data list), a day such as 2026-11-17, or six characters of a commit."
    )


def states(store: SnapshotStore, last: int) -> list[SnapshotState]:
    """The newest states and all that have a tag, newest first."""
    names: dict[CommitId, list[str]] = {store.resolve(MAIN): [MAIN]}
    for name, commit in store.tags().items():
        names.setdefault(commit, []).append(name)
    history = store.history()
    shown = {commit.id for commit in islice(history, last)} | names.keys()
    return [
        SnapshotState(c.id, tuple(sorted(names.get(c.id, ()))), c.time, c.message)
        for c in history
        if c.id in shown
    ]


def tables(store: SnapshotStore, commit: CommitId, key: str | None = None) -> list[MadeTable]:
    """Return what a state holds, by key and partition.

    Args:
        key: ``pipeline``, ``pipeline/stage`` or a whole asset key; None: all.
    """
    sizes: dict[str, int] = {}
    for entry in store.list(commit, _TABLES):
        folder = entry.path.removeprefix(_TABLES).rpartition("/")[0]
        sizes[folder] = sizes.get(folder, 0) + entry.size
    return [
        MadeTable(r.key, r.partition, r.data_version, r.rows, r.time, sizes.get(slot, 0))
        for slot, r in _records(store, commit).items()
        if key is None or f"{r.key}/".startswith(f"{key.strip('/')}/")
    ]


def differences(store: SnapshotStore, before: CommitId, after: CommitId) -> list[Difference]:
    """Return what the second state holds differently, by key and partition."""
    old, new = _records(store, before), _records(store, after)
    found: list[Difference] = []
    for slot in sorted(old.keys() | new.keys()):
        was, now = old.get(slot), new.get(slot)
        if was and now and was.data_version == now.data_version:
            continue
        kind = "added" if was is None else "removed" if now is None else "changed"
        either = now or was
        assert either is not None
        rows = (was.rows if was else None, now.rows if now else None)
        found.append(Difference(either.key, either.partition, kind, *rows))
    return found


def name_state(store: SnapshotStore, name: str, commit: CommitId) -> None:
    """Give a state a name for good.

    Raises:
        StorageError: it names another state already, or it could be taken for another kind of name.
    """
    rules = (
        (not _TAG.fullmatch(name), "letters, digits, '.', '_' and '-', 63 at most"),
        (name == MAIN, f"{MAIN} is the newest state"),
        (bool(_DAY.fullmatch(name)), "a day names the state at its end"),
        (bool(_HEX.fullmatch(name)), "that reads like a commit"),
        (bool(_TOLD.fullmatch(name)), "releases are named by the ledger"),
        (name.endswith((".", ".lock")) or ".." in name, "no '..', no '.' or '.lock' at the end"),
    )
    broken = [rule for wrong, rule in rules if wrong]
    if broken:
        raise StorageError(f"{name!r} cannot be the name of a state: {broken[0]}.")
    store.tag(name, commit)


def check_out(
    store: SnapshotStore, commit: CommitId, said: str, target: Path, key: str | None
) -> int:
    """Write the tables of a state, with their records, below a folder that appears whole.

    Returns:
        The number of files.

    Raises:
        SettingsError: something is at the folder already, or a file is above it.
        StorageError: the state holds nothing of that key.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise SettingsError(
            f"{target} is not empty; a state is checked out into an empty folder, so that the "
            "folder holds nothing else. Name another one."
        )
    wanted = list(_files(store, commit, key))
    if not wanted:
        raise StorageError(f"{said} holds no tables of {key or 'any pipeline'}.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise SettingsError(f"{target} cannot be a folder: a file is in its path.") from error
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".checkout-") as scratch:
        draft = LocalObjects(Path(scratch) / "state")
        for path in wanted:
            file = draft.path(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            store.copy_out(commit, path, file)
        told = {"schema": 1, "state": said, "commit": commit, "files": wanted}
        draft.write_bytes(json.dumps(told, indent=2).encode(), "state.json")
        draft.root.replace(target)
    return len(wanted)


def _files(store: SnapshotStore, commit: CommitId, key: str | None) -> Iterator[str]:
    for kind in (_TABLES, _RECORDS):
        for entry in store.list(commit, kind):
            name = entry.path.removeprefix(kind)
            if key is None or name.startswith((f"{key.strip('/')}/", f"{key.strip('/')}.")):
                yield entry.path


def _records(store: SnapshotStore, commit: CommitId) -> dict[str, StageRecord]:
    """Slot (``pipeline/stage/source/partition``) -> record."""
    return {
        entry.path.removeprefix(_RECORDS).removesuffix(".json"): StageRecord.model_validate_json(
            store.read_bytes(commit, entry.path)
        )
        for entry in store.list(commit, _RECORDS)
    }


def _told_by_history(store: SnapshotStore, said: str) -> CommitId | None:
    steps = _BEFORE.fullmatch(said)
    if steps:
        return _at(store.log(limit=int(steps[1]) + 1), int(steps[1]))
    if _DAY.fullmatch(said):
        return _at_end_of(store.log(), said)
    if _HEX.fullmatch(said):
        found = [c.id for c in store.history() if c.id.startswith(said)]
        return found[0] if len(found) == 1 else None
    return None


def _at(log: Sequence[Commit], place: int) -> CommitId | None:
    return log[place].id if place < len(log) else None


def _at_end_of(log: Sequence[Commit], said: str) -> CommitId | None:
    try:
        day = date.fromisoformat(said)
    except ValueError:
        return None
    return next((commit.id for commit in log if commit.time.astimezone(UTC).date() <= day), None)


def by_key(found: Sequence[MadeTable]) -> Mapping[str, Sequence[MadeTable]]:
    """Key -> its partitions, in order."""
    keys: dict[str, list[MadeTable]] = {}
    for table in found:
        keys.setdefault(table.key, []).append(table)
    return keys
