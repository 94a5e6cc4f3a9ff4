"""Tags every commit that a release points to, so that it is never collected, on a server either.
``irises-release-3`` is the third move of a model to a stage."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping

from ml_assets.errors import StorageError, counted
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
from ml_assets.records.recall_files import RECALL_TAG, WRONG_TAG, is_of_another, lost_recalls
from ml_assets.spec.recalls import recall_file
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.layout import read_records
from ml_assets.store.snapshots import MAIN, RUN_KEY, CommitId, SnapshotStore


def append_move(
    store: SnapshotStore,
    pipeline: str,
    make: Callable[[Head], LedgerEntry | Declined[Refusal]],
) -> Appended | Declined[Refusal]:
    """Add the line of a move to the ledger, and name its state; see ``chain.append``.

    Raises:
        StorageError: the name of the move is taken: nothing is moved.
    """

    def named(head: Head) -> LedgerEntry | Declined[Refusal]:
        made = make(head)
        if isinstance(made, LedgerEntry):
            _require_free(store, pipeline, head)
        return made

    outcome = append(store, pipeline, named)
    if isinstance(outcome, Appended):
        with contextlib.suppress(StorageError):  # the move is done; see ``unnamed_releases``
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


def unnamed_releases(store: SnapshotStore, pipeline: str) -> list[str]:
    """Try once more to name what a move left without a name: what is to be told where it fails."""
    try:
        failed = tag_releases(store, pipeline)
    except StorageError as error:
        failed = [str(error)]
    return [
        f"The model was moved; its state has no name yet, and house-keeping adds it: {said}"
        for said in failed
    ]


def planted_names(store: SnapshotStore) -> list[str]:
    """Return which tags name what no key that counts signed; they are left out of all history."""
    vouched = {commit.id for commit in store.history()}
    return [
        f"The tag {tag!r} names commit {commit[:12]}, which no trusted key signed: nothing reads "
        f"it, and house-keeping waits. Remove it: ml-assets data untag {tag}"
        for tag, commit in sorted(store.tags().items())
        if commit not in vouched
    ]


def take_away(store: SnapshotStore, name: str) -> CommitId:
    """Take a name away that somebody planted, or that is not needed any more; no state is deleted.

    Returns:
        The commit that it named.

    Raises:
        StorageError: there is no such name, or it is that of a release or a recall.
    """
    commit = store.tags().get(name)
    if commit is None:
        raise StorageError(f"There is no tag {name!r}; ml-assets data list shows which there are.")
    found, recall = _RELEASE.fullmatch(name), RECALL_TAG.fullmatch(name)
    if (found or recall) and is_of_another(store, commit):
        raise StorageError(
            f"{name!r} is a name that another home gave: its branch of the repository is not yours."
            " Remove it there."
        )
    if found and _is_right(store, found["pipeline"], int(found["number"]), commit):
        raise StorageError(f"{name!r} is the name of a release in the ledger.")
    if recall and store.exists(store.resolve(MAIN), recall_file(recall["id"])):
        raise StorageError(f"{name!r} is the name of a recall.")
    store.untag(name)
    return commit


_RELEASE = re.compile(r"(?P<pipeline>.+)-release-(?P<number>\d{1,9})(-input-\d+)?")


def _is_right(store: SnapshotStore, pipeline: str, number: int, commit: CommitId) -> bool:
    """Whether a name of a release, or of an input of it, is one that the ledger tells of."""
    if number > len(moves(read(store, pipeline))):
        return False
    name = f"The tag {release_name(pipeline, number)!r} "
    wrong = any(said.startswith(name) for said in wrong_names(store, pipeline))
    return not wrong and any(one.id == commit for one in store.history())


def wrong_names(store: SnapshotStore, pipeline: str) -> list[str]:
    """Return which tags of releases name another state than the one that the ledger tells of."""
    head, found = store.resolve(MAIN), list[str]()
    entries = read(store, pipeline, head)
    releases = dict(enumerate(moves(entries), 1))
    digests = {e.path: e.digest for e in store.list(head, f"ledger/{pipeline}/")}
    tags = _release_tags(store, pipeline)
    commits = _published(store) if tags else {}
    for tag, commit in tags.items():
        entry = releases.get(int(tag.rpartition("-")[2]))
        if is_of_another(store, commit):
            continue
        if entry is None:
            found.append(_taken(tag, commit, len(releases)))
            continue
        by = commits.get(run_key(pipeline, digests[path_of(pipeline, entry.seq)]))
        if commit != by:
            true = f"published by {by[:12]}" if by else "not in the history of main"
            said = f"The tag {tag!r} names commit {commit[:12]}; line {entry.seq} was {true}."
            found.append(f"{said} {WRONG_TAG}")
    return found


def release_name(pipeline: str, number: int) -> str:
    """Return people's name for the state of a model's ``number``-th move to a stage."""
    return f"{pipeline}-release-{number}"


def _taken(tag: str, commit: CommitId, told: int) -> str:
    return (
        f"The tag {tag!r} names commit {commit[:12]}, and the ledger has {counted(told, 'move')}: "
        f"it was put back to an earlier state, or somebody made the tag. {WRONG_TAG}"
    )


def _require_free(store: SnapshotStore, pipeline: str, head: Head) -> None:
    """Neither the next move nor a later one has a name yet, and ``main`` knows each recall that has
    one. The tags are read first: another process may move now."""
    if lost := lost_recalls(store):
        raise StorageError(f"{lost[0]} Nothing was moved.")
    number = len(moves(head.entries)) + 1
    for name, commit in _release_tags(store, pipeline).items():
        named = int(name.rpartition("-")[2])
        if named < number or is_of_another(store, commit):
            continue
        told = len(moves(read(store, pipeline)))
        if told < named:
            raise StorageError(f"{_taken(name, commit, told)} Nothing was moved.")
    if behind := left_behind(store):
        raise StorageError(f"{behind[0]} Nothing was moved.")


def _release_tags(store: SnapshotStore, pipeline: str) -> Mapping[str, CommitId]:
    """The names of moves that are there."""
    names = re.compile(rf"{re.escape(pipeline)}-release-\d{{1,9}}")
    return {tag: commit for tag, commit in sorted(store.tags().items()) if names.fullmatch(tag)}


def left_behind(store: SnapshotStore) -> list[str]:
    """Return which tags of releases and recalls, of any pipeline, name a state of this home that is
    not in the history of ``main``."""
    tags = store.tags()  # first: another process may move now
    signed = {commit.id for commit in store.history()}
    known = {commit.id for commit in store.log()}
    return [
        f"The tag {tag!r} names commit {commit[:12]}, which is not in the history of main: it was"
        f" put back to an earlier state. {WRONG_TAG}"
        for tag, commit in sorted(tags.items())
        if (_RELEASE.fullmatch(tag) or RECALL_TAG.fullmatch(tag))
        and commit in signed - known
        and not is_of_another(store, commit)
    ]


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
    """Run key -> the commit of ``main`` that published it first."""
    return {c.metadata.get(RUN_KEY, ""): c.id for c in store.log()}
