"""What must stay: everything that a release, a line of a ledger, a tag or work going on reaches.

An object is reached by a record that names it: every string of a record at a commit that matters
counts, whatever field it is in.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ml_assets.automation.housekeeping.retention import checkpoints_of, commit_name, run_name
from ml_assets.records import recalls
from ml_assets.records.ledger import chain as ledger
from ml_assets.records.ledger.stages import stages
from ml_assets.reports.wording import happened
from ml_assets.spec.recalls import Recall
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.snapshots import MAIN, RUN_KEY, Commit, CommitId, SnapshotStore

Record = Mapping[str, Any]


def reached(store: SnapshotStore, since: datetime) -> dict[str, str]:
    """Name of a thing -> why it must stay.

    Args:
        since: every state of ``main`` from then on counts: work that goes on may read it.

    Raises:
        StorageError: a ledger is broken; nothing is decided on half of the truth.
    """
    walk = _Walk(store)
    head, history = store.resolve(MAIN), store.history()
    walk.commit(head, "the head of main", lasting=True)
    for name, commit in store.tags().items():
        walk.commit(commit, f"the tag {name!r}", lasting=True)
    for pipeline in _pipelines(store, head):
        entries = ledger.read(store, pipeline, head)
        walk.ledger(pipeline, entries)
        for commit, path in _published(store, head, history, pipeline, entries):
            walk.commit(commit, f"{path} was published there", lasting=True)
    for recall in recalls.active(store, head):
        walk.recall(recall)
    for commit in _since(history, since):
        walk.commit(commit, "work that goes on may read it", lasting=False)
    walk.records()
    return walk.found


@dataclass
class _Walk:
    store: SnapshotStore
    found: dict[str, str] = field(default_factory=dict)
    _commits: dict[CommitId, tuple[str, bool]] = field(default_factory=dict)
    """Commit -> why it counts, and whether it counts for good."""
    _released: set[str] = field(default_factory=set)
    """Models that a ledger tells of."""
    _parsed: dict[str, Record] = field(default_factory=dict)
    """Digest -> record: what many commits share is read once."""

    def commit(self, commit: CommitId, reason: str, *, lasting: bool) -> None:
        self.found.setdefault(commit_name(commit), reason)
        self._commits.setdefault(commit, (reason, lasting))

    def ledger(self, pipeline: str, entries: Sequence[LedgerEntry]) -> None:
        """What is in a stage now, and the evidence of every line."""
        for stage, model in stages(entries).items():
            self.found.setdefault(model, f"{stage} of {pipeline}")
        for entry in entries:
            if entry.kind == "registration":  # being known keeps nothing
                continue
            reason = f"line {entry.seq} of the ledger of {pipeline} ({happened(entry)})"
            self._names(strings(entry.model_dump(mode="json")), reason)
            self._released.add(entry.model)
            runs = {entry.run, entry.decision.run if entry.decision else entry.run}
            self._names(map(run_name, runs), reason)

    def recall(self, recall: Recall) -> None:
        """What a recall names is evidence."""
        for version in (*recall.seeds, *recall.reached):
            names = (version.version, *([commit_name(version.commit)] if version.commit else []))
            self._names(names, f"recall {recall.id} names it")

    def records(self) -> None:
        """What the records of those commits name."""
        main = self.store.resolve(MAIN)
        for commit, (reason, lasting) in tuple(self._commits.items()):
            records = self._records(commit)
            for path, record in records.items():
                self._record(record, f"{path} at {reason}", at_head=commit == main)
            if lasting:
                self._lineage(records)

    def _record(self, record: Record, reason: str, *, at_head: bool) -> None:
        named = set(strings(record))
        self._names(named, reason)
        if self._released & named:
            self._names([run_name(record["run"])], reason)
        session = record["attributes"].get("session")
        if at_head and session:
            self._names([checkpoints_of(session)], reason)

    def _lineage(self, records: Mapping[str, Record]) -> None:
        """An input that was made again since is still there at the commit that it was read at."""
        versions = {(r["key"], r["partition"], r["data_version"]) for r in records.values()}
        for path, record in records.items():
            for i in record["inputs"]:
                if i["commit"] and (i["key"], i["partition"], i["version"]) not in versions:
                    self._names([commit_name(i["commit"])], f"an input of {path} was read there")

    def _records(self, commit: CommitId) -> dict[str, Record]:
        records: dict[str, Record] = {}
        for entry in self.store.list(commit, "records/"):
            if entry.digest not in self._parsed:
                self._parsed[entry.digest] = json.loads(self.store.read_bytes(commit, entry.path))
            records[entry.path] = self._parsed[entry.digest]
        return records

    def _names(self, names: Iterable[str], reason: str) -> None:
        for name in names:
            self.found.setdefault(name, reason)


def strings(value: Any) -> Iterator[str]:
    """Every string in a JSON document, but for the keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from strings(list(value.values()))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from strings(inner)


def _pipelines(store: SnapshotStore, commit: CommitId) -> list[str]:
    """The pipelines that have a ledger."""
    return sorted({entry.path.split("/")[1] for entry in store.list(commit, "ledger/")})


def _published(
    store: SnapshotStore,
    head: CommitId,
    history: Iterable[Commit],
    pipeline: str,
    entries: Sequence[LedgerEntry],
) -> Iterator[tuple[CommitId, str]]:
    """The commits that published the lines of a ledger, and the lines; not of registrations."""
    wanted = {ledger.path_of(pipeline, e.seq) for e in entries if e.kind != "registration"}
    lines = {
        ledger.run_key(pipeline, file.digest): file.path
        for file in store.list(head, f"ledger/{pipeline}/")
        if file.path in wanted
    }
    for commit in history:
        path = lines.get(commit.metadata.get(RUN_KEY, ""))
        if path:
            yield commit.id, path


def _since(history: Iterable[Commit], since: datetime) -> Iterator[CommitId]:
    """The commits since a time, and the one that was the newest then."""
    for commit in history:  # newest first
        yield commit.id
        if commit.time < since:
            return
