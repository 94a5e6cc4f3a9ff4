"""Finds the records that a model comes from, long after newer ones took their place.

The commit that published a line of the ledger is kept for good, with the records of that time.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from ml_assets.records.ledger.chain import path_of, read, run_key
from ml_assets.spec.records import LedgerEntry, StageRecord
from ml_assets.store.layout import Address, read_record
from ml_assets.store.snapshots import RUN_KEY, Commit, CommitId, SnapshotStore


@dataclass(frozen=True)
class Origin:
    """The records of a model and of the report on it, at a commit that has both."""

    commit: CommitId
    model: StageRecord
    report: StageRecord


def find_origin(store: SnapshotStore, pipeline: str, model: str) -> Origin | None:
    """The newest commit at which a model and its report are the pipeline's; None: none is kept.

    Raises:
        StorageError: the ledger is broken.
    """
    seen: set[tuple[str, ...]] = set()
    for commit in _commits(store, pipeline, model):
        files = [_record_file(store, commit, pipeline, stage) for stage in _STAGES]
        digests = tuple(digest for digest in files if digest)
        if len(digests) < len(files) or digests in seen:
            continue
        seen.add(digests)
        found, report = (read_record(store, commit, Address(pipeline, stage)) for stage in _STAGES)
        if found is None or report is None or found.data_version != model:
            continue
        if any(i.key == found.key and i.version == model for i in report.inputs):
            return Origin(commit, found, report)
    return None


def commit_of(store: SnapshotStore, pipeline: str, entry: LedgerEntry) -> CommitId | None:
    """The commit that published a line first; None: it is in the history no more."""
    line = store.read_bytes(store.resolve(), path_of(pipeline, entry.seq))
    key = run_key(pipeline, hashlib.sha256(line).hexdigest())
    found = [commit.id for commit in store.log() if commit.metadata.get(RUN_KEY) == key]
    return found[-1] if found else None


_STAGES = ("trained_model", "evaluation_report")


def _commits(store: SnapshotStore, pipeline: str, model: str) -> Iterator[CommitId]:
    """Commits of ``main``: those that published the lines about the model, newest first; then the
    rest."""
    head = store.resolve()
    history = store.log()
    published = {commit.metadata.get(RUN_KEY, ""): commit for commit in reversed(history)}
    for entry in reversed(read(store, pipeline, head)):
        if entry.model == model:
            line = store.read_bytes(head, path_of(pipeline, entry.seq))
            commit: Commit | None = published.get(
                run_key(pipeline, hashlib.sha256(line).hexdigest())
            )
            if commit:
                yield commit.id
    yield from (commit.id for commit in history)


def _record_file(store: SnapshotStore, commit: CommitId, pipeline: str, stage: str) -> str | None:
    found = store.list(commit, Address(pipeline, stage).record)
    return found[0].digest if found else None
