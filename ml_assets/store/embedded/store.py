"""The embedded snapshot store: content-addressed files, commits as JSON, refs in SQLite.

A commit is the digest of {tree, parents, message, metadata, time}; a tree is the digest of
{path: [digest, size]}: whoever signs a commit vouches for every byte in it, and for its parents.
Signed is what this process publishes, and nothing else; read is what is signed. Files appear by
rename, refs move by compare-and-swap: a kill at any moment leaves the last good state.
"""

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import polars as pl

from ml_assets.errors import StorageError, UntrustedState
from ml_assets.spec.base import canonical_json
from ml_assets.store.disk import disk_errors
from ml_assets.store.embedded import trees
from ml_assets.store.embedded.blobs import Blobs, Staged
from ml_assets.store.embedded.refs import Refs
from ml_assets.store.embedded.trees import Tree
from ml_assets.store.embedded.trust import Trust
from ml_assets.store.snapshots import (
    MAIN,
    RUN_KEY,
    AlreadyPublished,
    Busy,
    Change,
    Collected,
    Commit,
    CommitId,
    Conflict,
    Entry,
    Published,
    PublishResult,
    require_same_tag,
    utc_now,
)

_TREES_KEPT = 4
Grafts = Mapping[CommitId, CommitId | None]
"""Commit -> where history goes on behind it; None: it ends there."""


class EmbeddedStore:
    """SnapshotStore on a local folder; any number of processes may use it at once."""

    def __init__(self, root: Path, clock: Callable[[], datetime] = utc_now) -> None:
        self._root = root
        self._clock = clock
        self._blobs = Blobs(root)
        self._refs = Refs(root)
        self._trust = Trust(root, self._refs)
        self.keys = self._trust.keys
        self._commit = lru_cache(maxsize=4096)(self._read_commit)
        self._trees: dict[str, Tree] = {}

    # --- reading ----------------------------------------------------------------------------

    def resolve(self, ref: str = MAIN) -> CommitId:
        target = self._refs.target(ref)
        if target is None and ref == MAIN:
            target = self._first_commit()
        if target is None and len(ref) == 64 and ref.isalnum() and self._blobs.path(ref).is_file():
            target = ref
        if target is not None:
            self._trust.require(target, ref)
            return target
        raise StorageError(
            f"{ref!r} is not a branch, tag or commit of the snapshot store {self._root}"
        )

    def read_bytes(self, commit: CommitId, path: str) -> bytes:
        return self._blobs.read(self.entry(commit, path)[0], path)

    def exists(self, commit: CommitId, path: str) -> bool:
        return path in self.tree(commit)

    def scan(self, commit: CommitId, path: str) -> pl.LazyFrame:
        return pl.scan_parquet(self._blobs.verified(self.entry(commit, path)[0], path))

    def copy_out(self, commit: CommitId, path: str, target: Path) -> None:
        digest, _ = self.entry(commit, path)
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        shutil.copyfile(self._blobs.verified(digest, path), draft)
        os.replace(draft, target)

    def uri(self, commit: CommitId, path: str) -> str:
        return f"snapshots://{commit}/{path}"

    def list(self, commit: CommitId, prefix: str = "") -> tuple[Entry, ...]:
        return trees.entries(self.tree(commit), prefix)

    def log(self, ref: str = MAIN, limit: int | None = None) -> tuple[Commit, ...]:
        return tuple(itertools.islice(self._behind(self.resolve(ref)), limit))

    def history(self) -> tuple[Commit, ...]:
        found: dict[CommitId, Commit] = {}
        for end in (self.resolve(), *filter(self._trust.counts, self.tags().values())):
            new = itertools.takewhile(lambda one: one.id not in found, self._behind(end))
            found.update((commit.id, commit) for commit in new)
        return tuple(sorted(found.values(), key=lambda commit: commit.time, reverse=True))

    def diff(self, left: CommitId, right: CommitId) -> tuple[Change, ...]:
        return trees.changes(self.tree(left), self.tree(right))

    def tags(self) -> Mapping[str, CommitId]:
        return self._refs.tags()

    def made_here(self, commit: CommitId) -> bool:
        self._trust.require(commit)
        return True

    def tree(self, commit: CommitId) -> Tree:
        """Everything in a commit, held to its signature; do not change it."""
        self._trust.require(commit)
        return self._tree(self._commit(commit)[1])

    # --- writing ----------------------------------------------------------------------------

    def open(self, base: CommitId, run_key: str) -> "EmbeddedWorkspace":
        return EmbeddedWorkspace(self, base, run_key)

    def tag(self, name: str, commit: CommitId) -> None:
        with self.working():
            self._commit(commit)
            self._trust.require(commit, name)
            named = self._refs.tag(name, commit)
        require_same_tag(name, named, commit)

    def untag(self, name: str) -> None:
        with self.working():
            self._refs.untag(name)

    def stage(self, content: bytes | Path) -> Staged:
        """Copy content that a commit will hold into a draft."""
        return self._blobs.stage(content)

    def stage_tree(self, tree: Tree) -> Staged:
        """The same of a tree, which will be asked for next."""
        staged = self._blobs.stage(canonical_json(tree))
        self._remember(staged.digest, tree)
        return staged

    def write_commit(
        self,
        tree: str,
        parents: tuple[CommitId, ...],
        message: str,
        metadata: Mapping[str, str],
        staged: Collection[Staged],
    ) -> CommitId:
        """Store a commit of a tree, with what is staged of it; nothing refers to it yet."""
        body = {
            "tree": tree,
            "parents": list(parents),
            "message": message,
            "metadata": dict(metadata),
            "time": self._clock().isoformat(),
        }
        commit = self._blobs.stage(canonical_json(body))
        self._blobs.adopt([*staged, commit])
        return commit.digest

    def drop(self, staged: Collection[Staged]) -> None:
        """Forget what no commit holds."""
        self._blobs.drop(staged)

    def move_main(self, expected: CommitId, new: CommitId) -> bool:
        """Move ``main`` from one commit to another by compare-and-swap."""
        return self._refs.move(MAIN, expected, new, self._trust.sign(new))

    def published_since(self, base: CommitId, head: CommitId, run_key: str) -> CommitId | None:
        """The commit of ``main`` after ``base`` that carries a run key."""
        since = itertools.takewhile(lambda commit: commit.id != base, self._behind(head))
        return next((c.id for c in since if c.metadata.get(RUN_KEY) == run_key), None)

    def collect_garbage(
        self, drop: Collection[CommitId] = (), *, dry_run: bool = False
    ) -> Collected | Busy:
        kept: set[str] = set()
        with self._collector() as alone:
            if not alone:
                return Busy()
        with self.working():  # what takes long: others publish meanwhile, nobody else collects
            self._mark(self._cut(drop), kept)
        with self._collector() as alone:
            if not alone:
                return Busy()
            grafts = self._cut(drop)
            self._mark(grafts, kept)  # what came since
            if not dry_run:  # first: killed behind this line, the next collection finishes
                self._refs.graft(grafts, self._trust.sign_graft)
                self._refs.keep_signatures(kept)
            return self._blobs.keep_only(kept, dry_run=dry_run)

    # --- inside -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Hold the shared lock of everyone who writes: a collection waits for its turn."""
        with disk_errors(self._root):
            handle = (self._root / "writers.lock").open("a")
        with handle:
            fcntl.flock(handle, fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def _collector(self) -> Iterator[bool]:
        with disk_errors(self._root):
            handle = (self._root / "writers.lock").open("a")
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def _first_commit(self) -> CommitId:
        with self.working():
            body = {"tree": self._blobs.write(b"{}"), "parents": [], "message": "begin"}
            body |= {"metadata": {}, "time": datetime(1970, 1, 1, tzinfo=UTC).isoformat()}
            first = self._blobs.write(canonical_json(body))
            begun = self._refs.begin(MAIN, first, self._trust.sign(first))
        if begun is None:
            raise UntrustedState(
                f"The snapshot store {self._root} has tags or signatures, and no {MAIN}: somebody"
                " removed the branch. No new one is made, because recorded decisions would be lost."
                " Put the store back from a backup, or start clean (ml-assets ops reset)."
            )
        return begun

    def entry(self, commit: CommitId, path: str) -> tuple[str, int]:
        """Digest and size of a file of a commit."""
        return trees.entry_at(self.tree(commit), path, f"Commit {commit[:12]} of {self._root}")

    def _read_commit(self, commit: CommitId) -> tuple[Commit, str]:
        body = json.loads(self._blobs.read(commit, f"commit {commit[:12]}"))
        time = datetime.fromisoformat(body["time"])
        parents, metadata = tuple(body["parents"]), body["metadata"]
        return Commit(commit, parents, body["message"], metadata, time), body["tree"]

    def _tree(self, tree: str) -> Tree:
        found = self._trees.pop(tree, None)
        if found is None:
            content = json.loads(self._blobs.read(tree, f"tree {tree[:12]}"))
            found = {path: (digest, size) for path, (digest, size) in content.items()}
        self._remember(tree, found)
        return found

    def _remember(self, tree: str, found: Tree) -> None:
        """Keep a tree at hand, and few of them: each is as long as the store."""
        self._trees[tree] = found
        for older in list(self._trees)[:-_TREES_KEPT]:  # a copy: other threads read, too
            self._trees.pop(older, None)

    def _behind(self, end: CommitId) -> Iterator[Commit]:
        """First-parent history of a commit that counts, newest first; over signed grafts where it
        was cut. All of it counts with its end."""
        grafts = self._trust.grafts()
        commit: CommitId | None = end
        while commit:
            yield self._commit(commit)[0]
            commit = next(iter(self._parents(commit, grafts)), None)
            if commit:
                self._trust.inherit(commit)

    def _parents(self, commit: CommitId, grafts: Grafts) -> tuple[CommitId, ...]:
        if commit not in grafts:
            return self._commit(commit)[0].parents
        parent = grafts[commit]
        return (parent,) if parent else ()

    def _cut(self, drop: Collection[CommitId]) -> Grafts:
        """The grafts that leave these commits out of history; what a ref names is never left out.

        What is not named stays: a commit that was made after somebody chose ``drop``.
        """
        grafts, frontier = self._trust.grafts(), self._trust.ends()
        dropped = set(drop) - frontier
        cut: dict[CommitId, CommitId | None] = {}
        seen: set[CommitId] = set()
        while frontier:
            commit = frontier.pop()
            seen.add(commit)
            parents = self._parents(commit, grafts)
            if dropped.intersection(parents):
                older: CommitId | None = parents[0]
                while older in dropped:
                    older = next(iter(self._parents(older, grafts)), None)
                cut[commit] = older
                parents = (older,) if older else ()
            elif commit in grafts:
                cut[commit] = grafts[commit]
            frontier.update(set(parents) - seen)
        return cut

    def _mark(self, grafts: Grafts, kept: set[str]) -> None:
        """Add all that can be reached from the refs; behind a commit that is in it all is."""
        frontier = self._trust.ends() - kept
        while frontier:
            commit = frontier.pop()
            tree = self._commit(commit)[1]
            if tree not in kept:
                kept |= {tree, *(digest for digest, _ in self._tree(tree).values())}
            kept.add(commit)
            frontier.update(set(self._parents(commit, grafts)) - kept)


class EmbeddedWorkspace:
    """An ephemeral branch: it lives in this process, and its death leaves nothing to clean up."""

    def __init__(self, store: EmbeddedStore, base: CommitId, run_key: str) -> None:
        self.base = base
        self._store = store
        self._run_key = run_key
        self._staged: dict[str, tuple[str, int] | None] = {}
        self._absent: set[str] = set()
        self._drafts: list[Staged] = []
        self._head = base
        self._tree = ""
        self._message = ""
        self._metadata: dict[str, str] = {}
        self._working = contextlib.ExitStack()

    def __enter__(self) -> "EmbeddedWorkspace":
        self._working.enter_context(self._store.working())
        return self

    def __exit__(self, *_: object) -> None:
        self._store.drop(self._drafts)
        self._working.close()

    def put(self, path: str, file: Path, *, if_absent: bool = False) -> Entry:
        return self._put(trees.checked(path), file, if_absent)

    def put_bytes(self, path: str, data: bytes, *, if_absent: bool = False) -> Entry:
        return self._put(trees.checked(path), data, if_absent)

    def hold(self, path: str) -> None:
        self._staged[path] = self._store.entry(self.base, path)

    def remove(self, path: str) -> None:
        if path not in {**self._store.tree(self.base), **self._staged}:
            raise StorageError(f"There is no {path} to remove at {self.base[:12]}.")
        self._staged[path] = None

    def commit(self, message: str, metadata: Mapping[str, str]) -> CommitId:
        self._message, self._metadata = message, {**metadata, RUN_KEY: self._run_key}
        tree = self._store.stage_tree(trees.applied(self._store.tree(self.base), self._staged))
        staged, self._drafts, self._tree = [*self._drafts, tree], [], tree.digest
        said = message, self._metadata
        self._head = self._store.write_commit(tree.digest, (self._head,), *said, staged)
        return self._head

    def publish(self) -> PublishResult:
        if self._head == self.base:
            raise ValueError("commit before you publish")
        while True:
            head = self._store.resolve()
            done = self._store.published_since(self.base, head, self._run_key)
            if done:
                return AlreadyPublished(done)
            conflicts = self._conflicts(head)
            if conflicts:
                return Conflict(conflicts)
            current = self._store.tree(head)
            merged = trees.applied(current, self._staged)
            if merged == current:
                return AlreadyPublished(head)
            # where nobody published meanwhile, the tree is that of the branch
            new_tree = [] if head == self.base else [self._store.stage_tree(merged)]
            tree, parents = new_tree[0].digest if new_tree else self._tree, (head, self._head)
            said = self._message, self._metadata
            new = self._store.write_commit(tree, parents, *said, new_tree)
            if self._store.move_main(head, new):
                return Published(new)

    def _put(self, path: str, content: bytes | Path, if_absent: bool) -> Entry:
        draft = self._store.stage(content)
        self._drafts.append(draft)
        self._staged[path] = entry = (draft.digest, draft.size)
        if if_absent:
            self._absent.add(path)
        return Entry(path, *entry)

    def _conflicts(self, head: CommitId) -> tuple[str, ...]:
        base, current = self._store.tree(self.base), self._store.tree(head)
        return trees.conflicts(self._staged, base, current, self._absent)
