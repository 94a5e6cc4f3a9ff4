"""A tag on every commit that a release points to: what has a tag is never collected, on a server
neither, and people can say it: ``irises-release-3`` is the third move of a model to a stage.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping

from ml_assets.errors import StorageError
from ml_assets.records.ledger.chain import (
    Appended,
    Declined,
    Head,
    Refusal,
    append,
    path_of,
    read,
    run_key,
)
from ml_assets.records.ledger.stages import moves
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.layout import read_records
from ml_assets.store.snapshots import MAIN, RUN_KEY, CommitId, SnapshotStore


def append_move(
    store: SnapshotStore,
    pipeline: str,
    make: Callable[[Head], LedgerEntry | Declined[Refusal]],
) -> Appended | Declined[Refusal]:
    """Add the line of a move to the ledger, and name its state; see ``chain.append``."""
    outcome = append(store, pipeline, make)
    if isinstance(outcome, Appended):
        with contextlib.suppress(StorageError):  # the move is done; house-keeping repairs the name
            number = len(moves(read(store, pipeline, outcome.commit)))
            _tag(store, pipeline, number, outcome.commit)
    return outcome


def tag_releases(store: SnapshotStore, pipeline: str) -> list[str]:
    """Name every release that has no name yet; what could not be done, and why."""
    head, tags = store.resolve(MAIN), store.tags()
    releases = enumerate(moves(read(store, pipeline, head)), 1)
    missing = [(n, e) for n, e in releases if release_name(pipeline, n) not in tags]
    commits = _published(store) if missing else {}
    digests = {e.path: e.digest for e in store.list(head, f"ledger/{pipeline}/")}
    failed: list[str] = []
    for number, entry in missing:
        commit = commits.get(run_key(pipeline, digests[path_of(pipeline, entry.seq)]))
        try:
            if commit:
                _tag(store, pipeline, number, commit)
        except StorageError as error:
            failed.append(f"{release_name(pipeline, number)}: {error}")
    return failed


def release_name(pipeline: str, number: int) -> str:
    """What people call the state in which a model moved to a stage, the ``number``-th time."""
    return f"{pipeline}-release-{number}"


def _tag(store: SnapshotStore, pipeline: str, number: int, commit: CommitId) -> None:
    """The inputs first: where the name itself is there, all of it is."""
    name = release_name(pipeline, number)
    for place, earlier in enumerate(sorted(set(_inputs_before(store, pipeline, commit))), 1):
        store.tag(f"{name}-input-{place}", earlier)
    store.tag(name, commit)


def _inputs_before(store: SnapshotStore, pipeline: str, commit: CommitId) -> Iterator[CommitId]:
    """Where inputs were read that were made again before the release: it does not hold them."""
    records = read_records(store, commit, pipeline)
    there = {(r.key, r.partition, r.data_version) for r in records}
    for record in records:
        for i in record.inputs:
            if i.commit and (i.key, i.partition, i.version) not in there:
                yield i.commit


def _published(store: SnapshotStore) -> Mapping[str, CommitId]:
    """Run key -> the commit that published it first."""
    return {c.metadata.get(RUN_KEY, ""): c.id for c in store.history()}
