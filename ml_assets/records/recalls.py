"""The check that every loader makes: may this be used, or did a recall reach it?

A recall lists what it had reached. Content is judged by its inputs: what is published from recalled
inputs after the recall may not be used either; the same content, made again from sound inputs, may.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain

from ml_assets.errors import Recalled, StorageError, StoreAway
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion, registration
from ml_assets.records.recall_files import active, lost_recalls
from ml_assets.records.record_history import Node, node_of
from ml_assets.spec.gates import Target
from ml_assets.spec.recalls import Recall
from ml_assets.spec.records import InputVersion, LedgerEntry, StageRecord
from ml_assets.store.layout import Address, read_record
from ml_assets.store.snapshots import CommitId, SnapshotStore


def recalled(store: SnapshotStore, commit: CommitId, pipeline: str, model: str) -> Recall | None:
    """The recall that reached a model; None where it may be used."""
    return quarantine(store, commit).of(f"{pipeline}/trained_model", None, model)


def sound_champion(
    store: SnapshotStore,
    commit: CommitId,
    pipeline: str,
    entries: Sequence[LedgerEntry],
    stage: Target,
) -> str | None:
    """The model in a stage, to compare with; a recalled one is no champion."""
    model = champion(entries, stage)
    return None if model is None or recalled(store, commit, pipeline, model) else model


def recalled_champion(
    store: SnapshotStore,
    commit: CommitId,
    pipeline: str,
    entries: Sequence[LedgerEntry],
    stage: Target,
) -> str | None:
    """The model in a stage that may not be used; None where it may, or the stage is empty."""
    model = champion(entries, stage)
    return model if model and recalled(store, commit, pipeline, model) else None


def require_sound_model(store: SnapshotStore, commit: CommitId, pipeline: str, model: str) -> None:
    """Hold a model to the recalls before it is used.

    Raises:
        Recalled: one reached it; the message says which, why, and what to do. Or ``main`` was put
            back to before one: nobody can tell then what it reached.
    """
    if lost := lost_recalls(store):
        raise Recalled(f"No model of {pipeline} is used. {lost[0]}")
    found = recalled(store, commit, pipeline, model)
    if found:
        raise Recalled(f"The model {model[:12]} of {pipeline} {said_of(found, pipeline)}")


def require_sound(store: SnapshotStore, commit: CommitId, record: StageRecord) -> None:
    """Hold a table (or what else a record is of) to the recalls before it is read.

    Raises:
        Recalled: one reached it.
    """
    found = quarantine(store, commit).of_record(record)
    if found:
        where = f"{record.key} [{record.partition}]" if record.partition else record.key
        pipeline = record.key.split("/")[0]
        raise Recalled(f"{where} {record.data_version[:12]} {said_of(found, pipeline)}")


def said_of(recall: Recall, pipeline: str) -> str:
    """The rest of a sentence that begins with what is recalled of a pipeline."""
    return (
        f"is recalled by {recall.author}, for {recall.snapshot}: {recall.reason} (recall"
        f" {recall.id}, {recall.time:%Y-%m-%d}). It is kept and not used. Repair the data and make"
        f" it again: ml-assets run {pipeline}; if the recall was a mistake: ml-assets data recall"
        f" --lift {recall.id} --author NAME --reason TEXT"
    )


def derived_from(record: StageRecord) -> tuple[InputVersion, ...]:
    """The inputs that a record's content is made from.

    Others were only looked at: the champion beside the candidate, the partition before that a
    volume is compared with.
    """
    stage = record.key.split("/")[1]
    if stage == "validated_table":
        return tuple(i for i in record.inputs if i.partition == record.partition)
    return tuple(_named(record, i) for i in record.inputs if i.key != "champion")


def _named(record: StageRecord, version: InputVersion) -> InputVersion:
    """Weights to begin with and a teacher are models: of the release, by its digest."""
    if version.key not in ("init_from", "distill"):
        return version
    key = f"{record.key.split('/')[0]}/trained_model"
    return version.model_copy(update={"key": key})


def content_of(recall: Recall, seed: InputVersion) -> Node:
    """What a seed stands for: its content, wherever it is read again. Where the recall names a
    table (``table@version``): in that partition of its pipeline, whatever the table is called by
    then."""
    node = node_of(seed)
    return named_content(node) if "@" in recall.snapshot else _content(node)


def _content(node: Node) -> Node:
    return "", None, node[2]


def named_content(node: Node) -> Node:
    """A table's content in its pipeline, stage and partition."""
    key, partition, version = node
    return "/".join(key.split("/")[:2]), partition, version


_Asked = tuple[Node, CommitId | None]
"""What is asked about, and the older commit that its consumer was found at; None: on ``main``."""
_Verdict = Generator[_Asked, "Recall | None", "Recall | None"]


@dataclass
class Quarantine:
    """Holds what may not be used as of a commit.

    A seed never may, whoever reads it again. Everything else may where one of its records has only
    inputs that may: the list of a recall ends with the recall, and work that had begun before it
    publishes after it.
    """

    store: SnapshotStore
    commit: CommitId
    recalls: tuple[Recall, ...]
    _seeds: dict[Node, Recall] = field(default_factory=dict)
    _reached: dict[Node, Recall] = field(default_factory=dict)
    _named: dict[Node, list[CommitId]] = field(default_factory=dict)
    """Where recalls saw what is read whole, and what they spared."""
    _judged: dict[_Asked, Recall | None] = field(default_factory=dict)
    _ledgers: dict[str, Sequence[LedgerEntry]] = field(default_factory=dict)
    _newest: dict[Address, StageRecord | None] = field(default_factory=dict)
    _times: dict[CommitId, datetime | None] = field(default_factory=dict)
    _since: dict[str, Mapping[str, Sequence[CommitId]]] = field(default_factory=dict)
    """Recall -> message -> the commits since then."""

    def __post_init__(self) -> None:
        for recall in self.recalls:
            self._seeds.update((content_of(recall, seed), recall) for seed in recall.seeds)
            self._reached.update((node_of(version), recall) for version in recall.reached)
            whole = (version for version in recall.reached if version.partition is None)
            for version in (*recall.spared, *whole):
                if version.commit:
                    self._named.setdefault(node_of(version), []).append(version.commit)

    def of_record(self, record: StageRecord) -> Recall | None:
        """The recall that a record's content is reached by."""
        if not self.recalls:
            return None
        node = record.key, record.partition, record.data_version
        return self._answer((node, None), self._judge((node, None), record))

    def of(self, key: str, partition: str | None, version: str) -> Recall | None:
        """The same of a version by its name."""
        asked = (key, partition, version), None
        if not self.recalls or asked in self._judged:
            return self._judged.get(asked)
        return self._answer(asked, self._judge(asked))

    def _answer(self, first: _Asked, verdict: _Verdict) -> Recall | None:
        """Ask on, input by input: models that began with one another are a longer way than Python
        calls itself."""
        waiting: dict[_Asked, _Verdict] = {first: verdict}
        answer: Recall | None = None
        while waiting:
            asked = next(reversed(waiting))
            try:
                step = waiting[asked].send(answer)
            except StopIteration as said:
                answer = self._judged[asked] = said.value
                del waiting[asked]
                continue
            known = step in self._judged  # asked once: another thread may judge it meanwhile
            answer = self._judged[step] if known else None
            if not known and step not in waiting:
                waiting[step] = self._judge(step)
        return answer

    def _judge(self, asked: _Asked, record: StageRecord | None = None) -> _Verdict:
        node, at = asked
        if seed := self._seeds.get(named_content(node)) or self._seeds.get(_content(node)):
            return seed
        for other in self._copies(node):
            found = yield other, None
            if found:
                return found
        found = self._reached.get(node)
        given = [(record, at)] if record else []
        for known, place in chain(given, self._records(node, at)):
            found = yield from self._behind(known, place)
            if found is None:
                return None
        return found

    def model_anywhere(self, model: str) -> Recall | None:
        """The recall that reached a model in any pipeline."""
        nodes = self._in_each_pipeline(model)
        return next(filter(None, (self.of(*node) for node in nodes)), None)

    def _copies(self, node: Node) -> Iterator[Node]:
        """A model that was made elsewhere, as each other pipeline has it: here nobody knows what it
        was made from."""
        pipeline, stage, *_ = node[0].split("/")
        if stage != "trained_model":
            return
        if pipeline not in self._ledgers:
            self._ledgers[pipeline] = read(self.store, pipeline, self.commit)
        if registration(self._ledgers[pipeline], node[2]):
            yield from self._in_each_pipeline(node[2])

    def _in_each_pipeline(self, model: str) -> Iterator[Node]:
        versions = (v for recall in self.recalls for v in (*recall.seeds, *recall.reached))
        for pipeline in sorted({version.key.split("/")[0] for version in versions}):
            yield f"{pipeline}/trained_model", None, model

    def _behind(self, record: StageRecord, at: CommitId | None) -> _Verdict:
        """The first recall that reached an input."""
        for version in derived_from(record):
            if "/" in version.key:
                found = yield node_of(version), self._place_of(version, record.time) or at
                if found:
                    return found
        return None

    def _place_of(self, version: InputVersion, used: datetime) -> CommitId | None:
        """Where an input that was replaced is looked up; None: a list or its reader has judged it.

        Of what is older than a recall, its list is whole; who read after a recall asked it. Between
        the two an input may have been made during it. One that is listed may have been mended.
        """
        last = max((r.time for r in self.recalls if r.time < used + _SKEW), default=None)
        node = node_of(version)
        if last is None or version.commit is None or self._is_newest(node):
            return None
        if node in self._reached:
            return version.commit
        read = self._time_of(version.commit)
        return version.commit if read and read - _SKEW < last else None

    def _time_of(self, commit: CommitId) -> datetime | None:
        """When a commit was made; None: it was collected.

        Raises:
            StoreAway: nobody can tell.
        """
        if commit not in self._times:
            try:
                self._times[commit] = self.store.log(commit, 1)[0].time
            except StoreAway:
                raise
            except StorageError:
                self._times[commit] = None
        return self._times[commit]

    def _is_newest(self, node: Node) -> bool:
        newest = self._newest_of(Address.of(node[0], node[1]))
        return newest is not None and newest.data_version == node[2]

    def _newest_of(self, address: Address) -> StageRecord | None:
        if address not in self._newest:
            self._newest[address] = read_record(self.store, self.commit, address)
        return self._newest[address]

    def _records(
        self, node: Node, at: CommitId | None
    ) -> Iterator[tuple[StageRecord, CommitId | None]]:
        """What a content was made from, and where its inputs are looked up; what costs least first.

        A partition that was replaced is looked up no further: mended, it stays on ``main``.
        """
        address = Address.of(node[0], node[1])
        newest = self._newest_of(address)
        if newest and newest.data_version == node[2]:
            yield newest, at
        for commit in (*([at] if at else []), *self._named.get(node, ())):
            yield from self._at(commit, address, node[2])
        if newest and newest.data_version != node[2] and address.stage in _MENDED:
            for commit in self._later(address, node):
                yield from self._at(commit, address, node[2])

    def _at(
        self, commit: CommitId, address: Address, version: str
    ) -> Iterator[tuple[StageRecord, CommitId]]:
        """The record that a commit has of a version, if it is kept.

        Raises:
            StoreAway: nobody can tell.
        """
        try:
            record = read_record(self.store, commit, address)
        except StoreAway:
            raise
        except StorageError:  # the commit was collected
            return
        if record and record.data_version == version:
            yield record, commit

    def _later(self, address: Address, node: Node) -> Sequence[CommitId]:
        """The first commits of a table that is read whole since the recall that reached it: it may
        have been mended to the same content, and have moved on."""
        recall = self._reached.get(node)
        if recall is None or address.partition is not None:
            return ()
        if recall.id not in self._since:
            self._since[recall.id] = _commits_since(self.store, self.commit, recall.time - _SKEW)
        return self._since[recall.id].get(str(address), ())[:_MOST]


_MENDED = ("validated_table", "derived_table", "feature_set")
"""Stages that may leave out what was bad: mended, their content is the same."""
_MOST = 100
_SKEW = timedelta(hours=1)
"""Clocks of two machines differ by less."""


def _commits_since(
    store: SnapshotStore, head: CommitId, time: datetime
) -> Mapping[str, Sequence[CommitId]]:
    """Message -> commits since a time, oldest first."""
    limit, found = 256, store.log(head, 256)
    while len(found) == limit and found[-1].time >= time:
        limit *= 4
        found = store.log(head, limit)
    by_message: dict[str, list[CommitId]] = {}
    for commit in reversed(found):
        if commit.time >= time:
            by_message.setdefault(commit.message, []).append(commit.id)
    return by_message


@lru_cache(maxsize=2)
def quarantine(store: SnapshotStore, commit: CommitId) -> Quarantine:
    """Return what may not be used as of a commit; each record that is read asks for it."""
    return Quarantine(store, commit, active(store, commit))
