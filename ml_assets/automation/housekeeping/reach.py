"""Finds what must stay: everything that a release, a ledger line, a tag or work in progress
reaches.

An object is reached if any string of a record at a relevant commit names it, whatever the field.
There is one exception: records of a passed release do not keep its training set, because its
manifest lies with the record, and its rows can be made again from the snapshots.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ml_assets.assets.released_model.rollback import Way, way_back
from ml_assets.assets.released_model.tags import release_name
from ml_assets.automation.housekeeping.retention import checkpoints_of, commit_name, run_name
from ml_assets.records.ledger import chain as ledger
from ml_assets.records.ledger.stages import moves, stages
from ml_assets.records.recall_files import active
from ml_assets.reports.wording import happened
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.spec.recalls import Recall
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.snapshots import MAIN, RUN_KEY, Commit, CommitId, SnapshotStore

Record = Mapping[str, Any]
_BY_LEDGER = ("trained_model", "evaluation_report")
"""Stages that read the ledger: which model they begin from, or are compared with."""


def reached(store: SnapshotStore, since: datetime) -> dict[str, str]:
    """Name of a thing -> why it must stay.

    Args:
        since: every state of ``main`` from then on counts: running work may read it.

    Raises:
        StorageError: a ledger is broken, or a tag names what nobody signed; nothing is decided on
            half of the truth.
    """
    head, history = store.resolve(MAIN), store.history()
    names = ledger.pipelines_with_ledger(store, head)
    ledgers = {name: ledger.read(store, name, head) for name in names}
    walk = _Walk(store, passed_sets(ledgers.values()))
    walk.commit(head, "the head of main", lasting=True)
    releases = tuple(release_name(pipeline, 0).removesuffix("0") for pipeline in ledgers)
    for name in store.tags():
        walk.commit(
            store.resolve(name),
            f"the tag {name!r}",
            lasting=True,
            release=name.startswith(releases),
        )
    for pipeline, entries in ledgers.items():
        walk.ledger(pipeline, entries)
        for commit, path in _published(store, head, history, pipeline, entries):
            walk.commit(commit, f"{path} was published there", lasting=True, release=True)
    for recall in active(store, head):
        walk.recall(recall)
    for commit in _since(history, since):
        walk.commit(commit, "running work may read it", lasting=False)
    walk.records()
    return walk.found


def passed_sets(ledgers: Iterable[Sequence[LedgerEntry]]) -> frozenset[str]:
    """Digests of the training sets that were decided on before the last release, but for those of
    the models in a stage and of those that a rollback brings back."""
    passed: set[str] = set()
    kept: set[str] = set()
    for entries in ledgers:
        last = max((entry.seq for entry in moves(entries)), default=0)
        there = stages(entries)
        ways = [way_back(entries, ReleaseSpec(to=stage)) for stage in there]
        models = {*there.values(), *(way.back for way in ways if isinstance(way, Way))}
        for entry in entries:
            if entry.decision is not None:
                stays = entry.model in models or entry.seq > last
                (kept if stays else passed).add(entry.decision.evidence.data)
    return frozenset(passed - kept)


@dataclass
class _Walk:
    store: SnapshotStore
    passed: frozenset[str]
    """Training sets of passed releases."""
    found: dict[str, str] = field(default_factory=dict)
    _commits: dict[CommitId, tuple[str, bool, bool]] = field(default_factory=dict)
    """Commit -> why it counts, whether it counts for good, and whether only as a release."""
    _released: set[str] = field(default_factory=set)
    """Models that a ledger tells of."""
    _parsed: dict[str, Record] = field(default_factory=dict)
    """Digest -> record: what many commits share is read once."""

    def commit(
        self, commit: CommitId, reason: str, *, lasting: bool, release: bool = False
    ) -> None:
        """Keep a state of ``main``.

        Args:
            lasting: for good.
            release: it is kept because it tells of a release.
        """
        self.found.setdefault(commit_name(commit), reason)
        first, already, only = self._commits.get(commit, (reason, False, True))
        self._commits[commit] = (first, already or lasting, only and release)

    def ledger(self, pipeline: str, entries: Sequence[LedgerEntry]) -> None:
        """What is in a stage now, and the evidence of every line."""
        for stage, model in stages(entries).items():
            self.found.setdefault(model, f"{stage} of {pipeline}")
        for entry in entries:
            if entry.kind == "registration":  # being known keeps nothing
                continue
            reason = f"line {entry.seq} of the ledger of {pipeline} ({happened(entry)})"
            self._names(self._of_release(strings(entry.model_dump(mode="json"))), reason)
            self._released.add(entry.model)
            runs = {entry.run, entry.decision.run if entry.decision else entry.run}
            self._names(map(run_name, runs), reason)

    def recall(self, recall: Recall) -> None:
        """What a recall names is evidence."""
        for version in (*recall.seeds, *recall.reached, *recall.spared):
            names = (version.version, *([commit_name(version.commit)] if version.commit else []))
            self._names(names, f"recall {recall.id} names it")

    def records(self) -> None:
        """What the records of those commits name."""
        main = self.store.resolve(MAIN)
        for commit, (reason, lasting, release) in tuple(self._commits.items()):
            records = self._records(commit)
            for path, record in records.items():
                where = f"{path} at {reason}"
                self._record(record, where, at_head=commit == main, release=release)
            if lasting:
                self._lineage(records)

    def _record(self, record: Record, reason: str, *, at_head: bool, release: bool) -> None:
        named = set(strings(record))
        self._names(self._of_release(named) if release else named, reason)
        if self._released & named:
            self._names([run_name(record["run"])], reason)
        session = record["attributes"].get("session")
        if at_head and session:
            self._names([checkpoints_of(session)], reason)

    def _lineage(self, records: Mapping[str, Record]) -> None:
        """An input that was made again since is still there at the commit that it was read at.

        A model was trained and judged by the ledger of that commit, too: ``prove`` brings it back.
        """
        versions = {(r["key"], r["partition"], r["data_version"]) for r in records.values()}
        for path, record in records.items():
            proved = record["key"].split("/")[1] in _BY_LEDGER
            for i in record["inputs"]:
                gone = (i["key"], i["partition"], i["version"]) not in versions
                if i["commit"] and (gone or proved):
                    self._names([commit_name(i["commit"])], f"an input of {path} was read there")

    def _records(self, commit: CommitId) -> dict[str, Record]:
        records: dict[str, Record] = {}
        for entry in self.store.list(commit, "records/"):
            if entry.digest not in self._parsed:
                self._parsed[entry.digest] = json.loads(self.store.read_bytes(commit, entry.path))
            records[entry.path] = self._parsed[entry.digest]
        return records

    def _of_release(self, names: Iterable[str]) -> Iterator[str]:
        return (name for name in names if name not in self.passed)

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
