"""The snapshot store: the one port behind which tables, records and the ledger are versioned.

It has lakeFS's semantics: an ephemeral branch for each piece of work, commits, an atomic merge
onto ``main``, and reads by commit.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from ml_assets.errors import StorageError
from ml_assets.store.signing import Keys

if TYPE_CHECKING:
    import polars as pl

CommitId = str
MAIN = "main"
RUN_KEY = "run_key"
"""Metadata of every commit: the key of the work that it was opened for."""
TOOK_KEY = "took"
"""Metadata of the commit of a data step: the microseconds that it took."""


def require_same_tag(name: str, named: str, commit: str) -> None:
    """Hold a tag to the commit that it named first.

    Raises:
        StorageError: it was to name another one.
    """
    if named != commit:
        raise StorageError(
            f"The tag {name!r} names commit {named[:12]} already, not {commit[:12]}."
            " A tag never moves: choose another name."
        )


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Published:
    """The work is on ``main``, as this commit."""

    commit: CommitId


@dataclass(frozen=True)
class AlreadyPublished:
    """``main`` holds this work already, at this commit: nothing was to be done."""

    commit: CommitId


@dataclass(frozen=True)
class Conflict:
    """Somebody else changed these paths since the work began; nothing was published."""

    paths: tuple[str, ...]


PublishResult = Published | AlreadyPublished | Conflict


@dataclass(frozen=True)
class Entry:
    """One file of a commit."""

    path: str
    digest: str
    size: int


@dataclass(frozen=True)
class Commit:
    id: CommitId
    parents: tuple[CommitId, ...]
    message: str
    metadata: Mapping[str, str]
    time: datetime


@dataclass(frozen=True)
class Change:
    path: str
    kind: Literal["added", "removed", "changed"]


@dataclass(frozen=True)
class Collected:
    """Holds what a collection freed (or would free), and what is left."""

    freed_bytes: int
    kept_bytes: int


@dataclass(frozen=True)
class ByServer:
    """A server collects what is old, by rules of its own; here only what the dead left went."""

    branches: tuple[str, ...]
    """Ephemeral branches of processes that were killed."""


@dataclass(frozen=True)
class Busy:
    """Somebody is writing: nothing was collected."""


class Workspace(Protocol):
    """An ephemeral branch. Leaving its ``with`` block without a publish leaves nothing behind."""

    base: CommitId

    def __enter__(self) -> "Workspace": ...

    def __exit__(self, *_: object) -> None: ...

    def put(self, path: str, file: Path, *, if_absent: bool = False) -> Entry:
        """Stage a copy of a file. ``if_absent``: a conflict where ``main`` has the path."""
        ...

    def put_bytes(self, path: str, data: bytes, *, if_absent: bool = False) -> Entry:
        """Stage bytes."""
        ...

    def hold(self, path: str) -> None:
        """Stage a path as it is at the base, unread: a conflict where ``main`` has it otherwise.

        Raises:
            StorageError: there is no such path here.
        """
        ...

    def remove(self, path: str) -> None:
        """Stage the removal of a path.

        Raises:
            StorageError: there is no such path here.
        """
        ...

    def commit(self, message: str, metadata: Mapping[str, str]) -> CommitId:
        """Commit everything staged onto the branch."""
        ...

    def publish(self) -> PublishResult:
        """Merge the branch onto ``main``, atomically, three-way for each path.

        ``AlreadyPublished`` where the merge would change nothing, or where ``main`` has a commit
        with this run key since the base: a retry after a lost answer publishes once.
        """
        ...


class SnapshotStore(Protocol):
    @property
    def keys(self) -> Keys:
        """Return what vouches for its states, and for what is signed beside them."""
        ...

    def open(self, base: CommitId, run_key: str) -> Workspace:
        """Begin work on top of a commit; ``run_key`` names the work."""
        ...

    def resolve(self, ref: str = MAIN) -> CommitId:
        """The commit of a branch, a tag or a commit id.

        Raises:
            StorageError: there is no such ref.
        """
        ...

    def read_bytes(self, commit: CommitId, path: str) -> bytes:
        """A file's content, verified.

        Raises:
            StorageError: it is not in the commit, or is damaged.
        """
        ...

    def exists(self, commit: CommitId, path: str) -> bool: ...

    def scan(self, commit: CommitId, path: str) -> "pl.LazyFrame":
        """A Parquet file as a lazy frame; verified once before it is scanned."""
        ...

    def copy_out(self, commit: CommitId, path: str, target: Path) -> None:
        """Write a file's content to a local file, verified and by rename, never whole in memory.

        Raises:
            StorageError: it is not in the commit, or is damaged.
        """
        ...

    def uri(self, commit: CommitId, path: str) -> str:
        """Return what people call a file of a commit; it need not exist."""
        ...

    def list(self, commit: CommitId, prefix: str = "") -> tuple[Entry, ...]:
        """The entries under a prefix, by path."""
        ...

    def log(self, ref: str = MAIN, limit: int | None = None) -> tuple[Commit, ...]:
        """First-parent history, newest first."""
        ...

    def history(self) -> tuple[Commit, ...]:
        """Every commit that ``main`` or a tag has behind it by first parents, newest first.

        A tag on what no key that counts signed is left out: it tells nothing.
        """
        ...

    def diff(self, left: CommitId, right: CommitId) -> tuple[Change, ...]:
        """Return what ``right`` has differently from ``left``, by path."""
        ...

    def tag(self, name: str, commit: CommitId) -> None:
        """Name a commit for good; nothing is signed by that.

        Raises:
            StorageError: the name is taken by another commit.
            UntrustedState: the commit is not signed by a key that counts.
        """
        ...

    def untag(self, name: str) -> None:
        """Take a name away; what it named stays as long as something else reaches it."""
        ...

    def tags(self) -> Mapping[str, CommitId]: ...

    def made_here(self, commit: CommitId) -> bool:
        """Whether a commit was made by this home, by what is signed: homes on branches of one
        lakeFS repository share tags.

        Raises:
            UntrustedState: no key that counts signed it.
        """
        ...

    def collect_garbage(
        self, drop: Collection[CommitId] = (), *, dry_run: bool = False
    ) -> Collected | ByServer | Busy:
        """Leave commits out of history and delete the files that no other one reaches.

        What a branch or a tag names is never left out, nor is a commit that ``drop`` does not name.
        Killed at any moment, the next collection finishes. A store whose server collects by rules
        of its own leaves that to them.

        Args:
            dry_run: delete nothing, only count.
        """
        ...
