"""Every record that ``main`` ever held, of stages and of runs, in one pass.

The table of a record that was replaced since is still at the commit where it was found.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from ml_assets.records.run_record import RUN_FILE, RunRecord, record_bytes
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.store.layout import read_as
from ml_assets.store.snapshots import MAIN, CommitId, SnapshotStore

_BEGUN = "runs/"

Node = tuple[str, str | None, str]
"""Asset key, partition, data version."""


@dataclass(frozen=True)
class Made:
    """A record and the commit that brought it."""

    record: StageRecord
    commit: CommitId

    @property
    def node(self) -> Node:
        return self.record.key, self.record.partition, self.record.data_version


@dataclass(frozen=True)
class RunHistory:
    """All records, oldest first."""

    made: tuple[Made, ...]
    trainings: tuple[RunRecord, ...]
    """As they began, and once more as they ended."""
    evaluations: tuple[RunRecord, ...]

    @cached_property
    def by_node(self) -> dict[Node, list[Made]]:
        """Every time that something was made with this content, oldest first."""
        found: dict[Node, list[Made]] = {}
        for made in self.made:
            found.setdefault(made.node, []).append(made)
        return found

    def find(self, version: InputVersion, before: datetime) -> Made | None:
        """Return what was made last, before a time, with that content; by a clock that was put back
        since, all of it was made later: then the first."""
        made = self.by_node.get(node_of(version), [])
        return next((m for m in reversed(made) if m.record.time <= before), next(iter(made), None))

    def newest(self, key: str, partition: str | None, before: datetime) -> Made | None:
        """Return what was made last, before a time, of an (asset, partition); else the first."""
        made = [m for m in self.made if (m.record.key, m.record.partition) == (key, partition)]
        first = min(made, key=_time, default=None)
        return max((m for m in made if m.record.time <= before), key=_time, default=first)


def node_of(version: InputVersion) -> Node:
    return version.key, version.partition, version.version


def _time(made: Made) -> datetime:
    return made.record.time


def keep_run_record(store: SnapshotStore, record: RunRecord) -> RunRecord:
    """Write down what a run is about to do: one that then fails can be looked into, too."""
    path = f"{_BEGUN}{record.pipeline}/{record.run}.json"
    with store.open(store.resolve(MAIN), f"begun-{record.run}-{record.session}") as workspace:
        workspace.put_bytes(path, record_bytes(record))
        workspace.commit(f"run {record.run} of {record.pipeline} begins", {"run": record.run})
        workspace.publish()
    return record


def read_history(store: SnapshotStore) -> RunHistory:
    """Read every record once; each state of ``main`` is compared with the one before it.

    Raises:
        StorageError: a record is damaged, or was written by another version.
    """
    made: list[Made] = []
    trainings: list[RunRecord] = []
    evaluations: list[RunRecord] = []
    for commit, path in _written(store):
        if path.startswith("records/"):
            made.append(Made(read_as(store, commit, path, StageRecord), commit))
        elif path.startswith(_BEGUN) or path.endswith(f"/trained_model/all/{RUN_FILE}"):
            trainings.append(read_as(store, commit, path, RunRecord))
        elif path.endswith(f"/evaluation_report/all/{RUN_FILE}"):
            evaluations.append(read_as(store, commit, path, RunRecord))
    return RunHistory(tuple(made), tuple(trainings), tuple(evaluations))


def _written(store: SnapshotStore) -> Iterator[tuple[CommitId, str]]:
    """(commit, path) of every file that a commit brought or changed, oldest commit first."""
    before: CommitId | None = None
    for commit in reversed(store.history()):
        if before is None:
            yield from ((commit.id, entry.path) for entry in store.list(commit.id))
        else:
            changes = store.diff(before, commit.id)
            yield from ((commit.id, c.path) for c in changes if c.kind != "removed")
        before = commit.id
