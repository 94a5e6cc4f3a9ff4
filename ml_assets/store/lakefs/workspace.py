"""A hidden branch of a lakeFS repository: work goes there, is committed and merged, and the branch
is deleted.

Whatever answer is lost, the work is published once: the result is looked for before anything is
repeated.
"""

import contextlib
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from ml_assets.errors import StorageError
from ml_assets.store.embedded import trees
from ml_assets.store.embedded.trees import Tree
from ml_assets.store.lakefs.api import Merged, Recorded
from ml_assets.store.lakefs.repository import MANIFEST, LakeFsRepository, State, seal
from ml_assets.store.objects import file_digest
from ml_assets.store.retries import again
from ml_assets.store.snapshots import (
    MAIN,
    RUN_KEY,
    AlreadyPublished,
    CommitId,
    Conflict,
    Entry,
    Published,
    PublishResult,
)

EPHEMERAL = "ml-assets-work-"
"""Begins the name of such a branch; the time of its making follows."""
TIME, BRANCH = "ml_assets_time", "ml_assets_branch"
"""Metadata of a commit: when it was made, to the microsecond, and the branch of its work."""
_STAMP = "%Y%m%dT%H%M%SZ"
_ATTEMPTS = 100
"""Attempts of one publish; every one that was lost is somebody else's that got in."""
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
"""Seconds between attempts: each uploads the manifest, and writers that lost together would lose
together again."""


class _LostRace(Exception):
    """Somebody else merged first."""


class LakeFsWorkspace:
    """A hidden branch. What a killed process leaves is collected by `ml-assets ops gc`."""

    def __init__(
        self,
        repository: LakeFsRepository,
        base: CommitId,
        run_key: str,
        clock: Callable[[], datetime],
    ) -> None:
        self.base = base
        self._repository = repository
        self._api = repository.api
        self._run_key = run_key
        self._clock = clock
        self._branch = f"{EPHEMERAL}{clock().astimezone(UTC):{_STAMP}}-{uuid.uuid4().hex[:12]}"
        self._staged: dict[str, tuple[str, int] | None] = {}
        self._absent: set[str] = set()
        self._onto = base
        """The commit of our branch that this one is merged with."""
        self._head = base
        self._message = ""
        self._metadata: dict[str, str] = {}

    def __enter__(self) -> "LakeFsWorkspace":
        self._api.create_branch(self._branch, self.base)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(StorageError):  # it hurts nobody; gc collects it
            self._api.delete_branch(self._branch)

    def put(self, path: str, file: Path, *, if_absent: bool = False) -> Entry:
        _check(path)
        entry = (file_digest(file), file.stat().st_size)
        # what was published before may be damaged there: what is made again mends it
        if self._staged.get(path) != entry:
            self._repository.upload(self._branch, path, file)
        self._staged[path] = entry
        if if_absent:
            self._absent.add(path)
        return Entry(path, *entry)

    def put_bytes(self, path: str, data: bytes, *, if_absent: bool = False) -> Entry:
        with _file_of(data) as file:
            return self.put(path, file, if_absent=if_absent)

    def hold(self, path: str) -> None:
        self._staged[path] = self._repository.entry(self.base, path)

    def remove(self, path: str) -> None:
        if path not in self._staged and path not in self._was:
            raise StorageError(f"There is no {path} to remove at {self.base[:12]}.")
        self._api.delete(self._branch, path)
        self._staged[path] = None

    def commit(self, message: str, metadata: Mapping[str, str]) -> CommitId:
        self._message, self._metadata = message, {**metadata, RUN_KEY: self._run_key}
        return self._commit(trees.applied(self._was, self._staged))

    def publish(self) -> PublishResult:
        if not self._metadata:
            raise ValueError("commit before you publish")
        try:
            return again(
                self._publish,
                passes=lambda error: isinstance(error, _LostRace),
                tries=_ATTEMPTS,
                first=_FIRST_WAIT,
                longest=_LONGEST_WAIT,
                pause=self._repository.pause,
            )
        except _LostRace as error:
            raise StorageError(
                f"Nothing was published in {_ATTEMPTS} attempts: other writers were always first."
                " Run again when fewer runs are active."
            ) from error

    def _publish(self) -> PublishResult:
        """Publish in one attempt.

        Raises:
            _LostRace: somebody else was first.
        """
        head = self._repository.resolve(MAIN)
        done = self._repository.published_since(self.base, head, self._run_key)
        if done:
            return self._outcome(done)
        current = self._repository.tree(head)
        conflicts = trees.conflicts(self._staged, self._was, current, self._absent)
        if conflicts:
            return Conflict(conflicts)
        merged = trees.applied(current, self._staged)
        if merged == current:
            return AlreadyPublished(head)
        self._move_onto(head, merged)
        # where somebody else was first, the manifests conflict
        to, told = self._repository.branch, self._told
        outcome = self._api.merge(self._branch, to, self._message, told, self._look)
        if isinstance(outcome, Merged):
            return Published(outcome.commit)
        raise _LostRace

    @property
    def _was(self) -> Tree:
        return self._repository.tree(self.base)

    def _commit(self, tree: Tree) -> CommitId:
        state = State(tree, self._run_key, self._onto, self._repository.branch)
        with _file_of(seal(state, self._repository.keys)) as file:
            self._repository.upload(self._branch, MANIFEST, file)
        self._head = self._api.commit(self._branch, self._head, self._message, self._told)
        return self._head

    def _move_onto(self, head: CommitId, merged: Tree) -> None:
        """Take in what was published since; of our own paths nobody changed one."""
        if head == self._onto:
            return
        before = self._head

        def look() -> CommitId | None:
            now = self._api.head(self._branch)
            return now if now != before else None

        taken = self._api.merge(head, self._branch, "take in main", {}, look, dest_wins=True)
        self._head = taken.commit if isinstance(taken, Merged) else self._head
        self._onto = head
        self._commit(merged)

    @property
    def _told(self) -> dict[str, str]:
        """What lakeFS shows of the commit."""
        told = {**self._metadata, TIME: self._clock().isoformat(), BRANCH: self._branch}
        return {key: str(value) for key, value in told.items()}

    def _look(self) -> CommitId | None:
        """The commit of our merge, where its answer was lost."""
        head = self._repository.resolve(MAIN)
        done = self._repository.published_since(self.base, head, self._run_key)
        return done.id if done and done.metadata.get(BRANCH) == self._branch else None

    def _outcome(self, done: Recorded) -> PublishResult:
        ours = done.metadata.get(BRANCH) == self._branch
        return Published(done.id) if ours else AlreadyPublished(done.id)


@contextlib.contextmanager
def _file_of(data: bytes) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        yield Path(file.name)


def _check(path: str) -> None:
    if trees.checked(path) == MANIFEST or path.startswith("_lakefs_actions/"):
        raise StorageError(f"{path!r} is not a path for data: lakeFS or the store uses it.")


def made(branch: str) -> datetime:
    """Return when a branch of work was made; long after now where its name does not tell."""
    try:
        stamp = branch.removeprefix(EPHEMERAL).partition("-")[0]
        return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)
