"""The recalls as files of the snapshot store: read, written, lifted.

``recalls/ID.json`` says what one reached, and ``recalls/active.json`` which of them hold.
"""

import re
from collections.abc import Callable

from ml_assets.errors import StorageError, StoreAway, UntrustedState
from ml_assets.spec.base import canonical_json
from ml_assets.spec.recalls import ACTIVE_FILE, ActiveRecalls, Lift, Recall, recall_file
from ml_assets.store.snapshots import MAIN, CommitId, Conflict, SnapshotStore

RECALL_TAG = re.compile(r"recall-(?P<id>[0-9a-f]{12})")
WRONG_TAG = (
    "Find out who wrote it, and restore the store from a backup; if the ledger is complete (its "
    "head is the one that you noted), remove the name: ml-assets data untag TAG."
)
"""What to do about a name that the history of ``main`` does not bear out."""
_ATTEMPTS = 20
_FOLDER = "recalls/"


def active(store: SnapshotStore, commit: CommitId) -> tuple[Recall, ...]:
    """The recalls that hold as of a commit, oldest first."""
    if not store.exists(commit, ACTIVE_FILE):
        return ()
    ids = ActiveRecalls.model_validate_json(store.read_bytes(commit, ACTIVE_FILE)).ids
    digests = {one.path: one.digest for one in store.list(commit, _FOLDER)} if ids else {}
    return tuple(_read(store, commit, one, digests.get(recall_file(one))) for one in ids)


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
    several = "Several recalls begin" if found else "No recall in force begins"
    raise StorageError(f"{several} with {wanted!r}. In force: {listed}")


def lifted(store: SnapshotStore, commit: CommitId, recall: str) -> tuple[Recall, Lift] | None:
    """A recall that holds no more, by its whole id, and who lifted it; None: there is none."""
    path = _lift_file(recall)
    if not store.exists(commit, path):
        return None
    said = Lift.model_validate_json(store.read_bytes(commit, path))
    return _read(store, commit, recall), said


def lost_recalls(store: SnapshotStore) -> list[str]:
    """Return which tags name a recall of this home that ``main`` does not know."""
    named = [(tag, commit, RECALL_TAG.fullmatch(tag)) for tag, commit in store.tags().items()]
    head = store.resolve(MAIN)
    return [
        f"The tag {tag!r} names commit {commit[:12]}, and main does not know this recall: it was"
        f" put back to an earlier state. {WRONG_TAG}"
        for tag, commit, recall in sorted(named, key=lambda one: one[0])
        if recall
        and not store.exists(head, recall_file(recall["id"]))
        and not is_of_another(store, commit)
    ]


def is_of_another(store: SnapshotStore, commit: CommitId) -> bool:
    """Whether a commit, signed, is of another home, which moves and recalls for itself. A name that
    leads to what nobody signed was moved: it tells as much."""
    try:
        return not store.made_here(commit)
    except UntrustedState:
        return False
    except StoreAway:
        raise
    except StorageError:  # of another home: no commit of this one is collected that has a name
        return True


def write(
    store: SnapshotStore, recall: Recall, unless: Callable[[Recall], bool] = lambda _: False
) -> None:
    """Publish a recall, or what it reached more; from then on nothing that it reached is used.

    Args:
        unless: true of one that holds already and says the same: nothing is written.

    Raises:
        StorageError: other writers were always first.
    """
    path = recall_file(recall.id)
    _publish(store, f"recall {recall.id}", path, recall, add=recall.id, unless=unless)


def name_state(store: SnapshotStore, recall: str) -> None:
    """Tag a state that knows a recall, if none is tagged yet: it tells when ``main`` was put back
    to before it.

    Raises:
        StorageError: the tag cannot be written.
    """
    if (name := f"recall-{recall}") not in store.tags():
        store.tag(name, store.resolve(MAIN))


def forget_state(store: SnapshotStore, recall: str) -> None:
    """Take the tag of a recall that is lifted away: nothing is held back any more.

    Raises:
        StorageError: it cannot be taken away.
    """
    commit = store.tags().get(name := f"recall-{recall}")
    if commit is not None and not is_of_another(store, commit):
        store.untag(name)


def lift(store: SnapshotStore, said: Lift) -> None:
    """Publish that a recall holds no more.

    Raises:
        StorageError: other writers were always first.
    """
    _publish(store, f"lift recall {said.id}", _lift_file(said.id), said, remove=said.id)


_READ: dict[str, Recall] = {}
"""Digest -> a recall that this process has read: most are the same in the next commit."""


def _read(store: SnapshotStore, commit: CommitId, recall: str, digest: str | None = None) -> Recall:
    if digest in _READ:
        return _READ[digest]
    found = Recall.model_validate_json(store.read_bytes(commit, recall_file(recall)))
    return _READ.setdefault(digest, found) if digest else found


def _lift_file(recall: str) -> str:
    return f"{_FOLDER}{recall}.lifted.json"


def _publish(
    store: SnapshotStore,
    message: str,
    path: str,
    document: Recall | Lift,
    *,
    add: str | None = None,
    remove: str | None = None,
    unless: Callable[[Recall], bool] = lambda _: False,
) -> None:
    for _ in range(_ATTEMPTS):
        base = store.resolve(MAIN)
        holding = active(store, base)
        if any(unless(recall) for recall in holding):
            return
        ids = dict.fromkeys(recall.id for recall in holding if recall.id != remove)
        now = ActiveRecalls(ids=tuple(ids | {add: None} if add else ids))
        with store.open(base, f"{message} on {base}") as workspace:
            workspace.put_bytes(path, canonical_json(document))
            workspace.put_bytes(ACTIVE_FILE, canonical_json(now))
            workspace.commit(message, {"author": document.author})
            if not isinstance(workspace.publish(), Conflict):
                return
    raise StorageError(
        f"{message}: other writers were first in {_ATTEMPTS} attempts. Nothing was written; run "
        "again when fewer runs are active."
    )
