"""The snapshot store on a lakeFS server.

The port has lakeFS's semantics. A manifest that every publish writes (``repository``) adds what the
server lacks: a compare-and-swap of the branch, and content that is proved by a signature. The
server collects history by branches, not by tags, so every tag gets a branch.
"""

import itertools
import os
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from ml_assets.errors import UntrustedState
from ml_assets.store.embedded import trees
from ml_assets.store.lakefs.api import Pause, Recorded
from ml_assets.store.lakefs.repository import LakeFsRepository
from ml_assets.store.lakefs.workspace import BRANCH, EPHEMERAL, TIME, LakeFsWorkspace, made
from ml_assets.store.snapshots import (
    MAIN,
    ByServer,
    Change,
    Commit,
    CommitId,
    Entry,
    require_same_tag,
    utc_now,
)

KEPT = "ml-assets-keep-"
"""Begins the name of a hidden branch that keeps a tagged commit from the server's collector."""
ORPHANED = timedelta(days=1)
"""The age from which nobody can be at work on an ephemeral branch any more."""


class LakeFsStore:
    """SnapshotStore on a branch of a repository; any number of machines may use it at once.

    Args:
        location: ``lakefs://repository[/branch]``.
        clock: gives the time of a commit.
        pause: waits so many seconds between two tries of a call.
    """

    def __init__(
        self,
        location: str,
        clock: Callable[[], datetime] = utc_now,
        pause: Pause = time.sleep,
    ) -> None:
        self._clock = clock
        self._repository = LakeFsRepository(location, pause)
        self._api = self._repository.api
        self.keys = self._repository.keys

    # --- reading ----------------------------------------------------------------------------

    def resolve(self, ref: str = MAIN) -> CommitId:
        return self._repository.resolve(ref)

    def read_bytes(self, commit: CommitId, path: str) -> bytes:
        return self._repository.read_bytes(commit, path)

    def exists(self, commit: CommitId, path: str) -> bool:
        return path in self._repository.tree(commit)

    def scan(self, commit: CommitId, path: str) -> pl.LazyFrame:
        return self._repository.scan(commit, path)

    def copy_out(self, commit: CommitId, path: str, target: Path) -> None:
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            self._repository.write_to(commit, path, draft)
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)

    def uri(self, commit: CommitId, path: str) -> str:
        return f"lakefs://{self._api.repository}/{commit}/{path}"

    def list(self, commit: CommitId, prefix: str = "") -> tuple[Entry, ...]:
        return trees.entries(self._repository.tree(commit), prefix)

    def log(self, ref: str = MAIN, limit: int | None = None) -> tuple[Commit, ...]:
        found = self._api.log(self.resolve(ref))
        return tuple(_commit(each) for each in itertools.islice(found, limit))

    def history(self) -> tuple[Commit, ...]:
        found: dict[CommitId, Commit] = {}
        for end in (self.resolve(), *self.tags().values()):
            if end in found or not self._counts(end):
                continue
            for each in self._api.log(end):
                if each.id in found:  # the rest of the way is known
                    break
                found[each.id] = _commit(each)
        return tuple(sorted(found.values(), key=lambda commit: commit.time, reverse=True))

    def _counts(self, commit: CommitId) -> bool:
        try:
            self._repository.state(commit)
        except UntrustedState:
            return False
        return True

    def diff(self, left: CommitId, right: CommitId) -> tuple[Change, ...]:
        return trees.changes(self._repository.tree(left), self._repository.tree(right))

    def tags(self) -> Mapping[str, CommitId]:
        return self._api.tags()

    def made_here(self, commit: CommitId) -> bool:
        return self._repository.state(commit).branch in ("", self._repository.branch)

    # --- writing ----------------------------------------------------------------------------

    def open(self, base: CommitId, run_key: str) -> LakeFsWorkspace:
        return LakeFsWorkspace(self._repository, base, run_key, self._clock)

    def tag(self, name: str, commit: CommitId) -> None:
        self._repository.state(commit)
        self._api.create_branch(f"{KEPT}{commit}", commit)
        named = self._api.create_tag(name, commit)
        require_same_tag(name, named, commit)

    def untag(self, name: str) -> None:
        self._api.delete_tag(name)

    def collect_garbage(
        self, drop: Collection[CommitId] = (), *, dry_run: bool = False
    ) -> ByServer:
        youngest = self._clock() - ORPHANED
        orphans = [name for name in self._api.branches(EPHEMERAL) if made(name) < youngest]
        for name in () if dry_run else orphans:
            self._api.delete_branch(name)
        return ByServer(tuple(orphans))


def _commit(found: Recorded) -> Commit:
    ours = (name for name in found.metadata if not name.startswith(".lakefs"))
    metadata = {name: found.metadata[name] for name in ours if name not in (TIME, BRANCH)}
    try:
        when = datetime.fromisoformat(found.metadata[TIME])
    except (KeyError, ValueError):  # somebody else's commit
        when = found.time
    return Commit(found.id, found.parents, found.message, metadata, when)
