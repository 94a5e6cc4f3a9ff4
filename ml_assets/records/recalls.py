"""Recalls in the snapshot store, and the check that every loader makes: may this be used?

A recall lists what it reached. The same content, made again from inputs that no recall reaches, may
be used: content is judged by its inputs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ml_assets.errors import Recalled, StorageError
from ml_assets.records.ledger.stages import champion
from ml_assets.records.record_history import Node, node_of
from ml_assets.spec.base import canonical_json
from ml_assets.spec.gates import Target
from ml_assets.spec.recalls import ActiveRecalls, Lift, Recall
from ml_assets.spec.records import InputVersion, LedgerEntry, StageRecord
from ml_assets.store.layout import Address, read_record
from ml_assets.store.snapshots import MAIN, CommitId, Conflict, SnapshotStore

_FOLDER = "recalls/"
_ACTIVE = f"{_FOLDER}active.json"
_ATTEMPTS = 20


def active(store: SnapshotStore, commit: CommitId) -> tuple[Recall, ...]:
    """The recalls that hold as of a commit, oldest first; where none does, this costs nothing."""
    if not store.exists(commit, _ACTIVE):
        return ()
    ids = ActiveRecalls.model_validate_json(store.read_bytes(commit, _ACTIVE)).ids
    return tuple(_read(store, commit, recall) for recall in ids)


def find(store: SnapshotStore, commit: CommitId, wanted: str) -> Recall:
    """A recall that holds, by the beginning of its id.

    Raises:
        StorageError: none does, or several.
    """
    holding = active(store, commit)
    found = [recall for recall in holding if recall.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{recall.id} ({recall.snapshot})" for recall in holding) or "none"
    raise StorageError(
        f"No one recall that holds begins with {wanted!r}; those that hold: {listed}"
    )


def lifted(store: SnapshotStore, commit: CommitId, recall: str) -> tuple[Recall, Lift] | None:
    """A recall that holds no more, by its whole id, and who lifted it; None: there is none."""
    path = f"{_FOLDER}{recall}.lifted.json"
    if not store.exists(commit, path):
        return None
    said = Lift.model_validate_json(store.read_bytes(commit, path))
    return _read(store, commit, recall), said


def write(store: SnapshotStore, recall: Recall) -> None:
    """Publish a recall; from then on nothing that it reached is used.

    Raises:
        StorageError: other writers were always first.
    """
    _publish(store, f"recall {recall.id}", f"{_FOLDER}{recall.id}.json", recall, add=recall.id)


def lift(store: SnapshotStore, said: Lift) -> None:
    """Publish that a recall holds no more.

    Raises:
        StorageError: other writers were always first.
    """
    path = f"{_FOLDER}{said.id}.lifted.json"
    _publish(store, f"lift recall {said.id}", path, said, remove=said.id)


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
        Recalled: one reached it; the message says which, why, and what to do.
    """
    found = recalled(store, commit, pipeline, model)
    if found:
        raise Recalled(f"The model {model[:12]} of {pipeline} {said_of(found)}")


def require_sound(store: SnapshotStore, commit: CommitId, record: StageRecord) -> None:
    """Hold a table (or what else a record is of) to the recalls before it is read.

    Raises:
        Recalled: one reached it.
    """
    found = quarantine(store, commit).of_record(record)
    if found:
        where = f"{record.key} [{record.partition}]" if record.partition else record.key
        raise Recalled(f"{where} {record.data_version[:12]} {said_of(found)}")


def said_of(recall: Recall) -> str:
    """The rest of a sentence that begins with what is recalled."""
    pipeline = recall.seeds[0].key.split("/")[0]
    return (
        f"is recalled by {recall.author}, for {recall.snapshot}: {recall.reason} (recall"
        f" {recall.id}, {recall.time:%Y-%m-%d}). It is kept and not used. Mend the data and make it"
        f" again: ml-assets run {pipeline}; if the recall was a mistake: ml-assets data recall"
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


@dataclass
class Quarantine:
    """Holds what the recalls of a commit reached, and what was since made from sound inputs."""

    store: SnapshotStore
    commit: CommitId
    recalls: tuple[Recall, ...]
    _seeds: dict[Node, Recall] = field(default_factory=dict)
    _reached: dict[Node, Recall] = field(default_factory=dict)
    _judged: dict[Node, Recall | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for recall in self.recalls:
            self._seeds.update((node_of(version), recall) for version in recall.seeds)
            self._reached.update((node_of(version), recall) for version in recall.reached)

    def of_record(self, record: StageRecord) -> Recall | None:
        """The recall that a record's content is reached by."""
        node = record.key, record.partition, record.data_version
        if node in self._seeds:
            return self._seeds[node]
        if node not in self._reached:
            return None
        return self._first(derived_from(record))

    def of(self, key: str, partition: str | None, version: str) -> Recall | None:
        """The same of a version by its name."""
        node = key, partition, version
        if node not in self._judged:
            self._judged[node] = self._judge(node)
        return self._judged[node]

    def _judge(self, node: Node) -> Recall | None:
        listed = self._seeds.get(node) or self._reached.get(node)
        if listed is None or node in self._seeds:
            return listed
        address = Address.of(node[0], node[1])
        there = read_record(self.store, self.commit, address)
        if there is None or there.data_version != node[2]:
            return listed
        return self._first(derived_from(there))

    def _first(self, inputs: Iterable[InputVersion]) -> Recall | None:
        found = (self.of(i.key, i.partition, i.version) for i in inputs)
        return next((recall for recall in found if recall), None)


def quarantine(store: SnapshotStore, commit: CommitId) -> Quarantine:
    """Return what may not be used as of a commit."""
    return Quarantine(store, commit, active(store, commit))


def _read(store: SnapshotStore, commit: CommitId, recall: str) -> Recall:
    return Recall.model_validate_json(store.read_bytes(commit, f"{_FOLDER}{recall}.json"))


def _publish(
    store: SnapshotStore,
    message: str,
    path: str,
    document: Recall | Lift,
    *,
    add: str | None = None,
    remove: str | None = None,
) -> None:
    for _ in range(_ATTEMPTS):
        base = store.resolve(MAIN)
        ids = [recall.id for recall in active(store, base) if recall.id not in (add, remove)]
        now = ActiveRecalls(ids=tuple([*ids, add] if add else ids))
        with store.open(base, f"{message} on {base}") as workspace:
            workspace.put_bytes(path, canonical_json(document))
            workspace.put_bytes(_ACTIVE, canonical_json(now))
            workspace.commit(message, {"author": document.author})
            if not isinstance(workspace.publish(), Conflict):
                return
    raise StorageError(
        f"{message}: other writers were first in {_ATTEMPTS} attempts. Nothing was written; run "
        "again when fewer runs are active."
    )
