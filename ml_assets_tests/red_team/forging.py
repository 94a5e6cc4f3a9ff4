"""What an attacker does who may write every file: commits with all digests right, and no key."""

import base64
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ml_assets.spec.base import canonical_json
from ml_assets.store.embedded.blobs import Blobs
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.signing import Keys

THEIRS = Keys.of(base64.b64encode(b"the key of somebody else, really").decode())


@contextmanager
def refs(root: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(root / "refs.db")
    with connection:
        yield connection
    connection.close()


def point_main_at(root: Path, commit: str) -> None:
    with refs(root) as database:
        database.execute("update refs set target = ? where name = 'main'", [commit])


def sign_as_somebody_else(root: Path, commit: str) -> None:
    signature = THEIRS.sign("application/vnd.ml_assets.commit", commit.encode())
    assert signature is not None
    row = [commit, signature.key, signature.value]
    with refs(root) as database:
        database.execute("insert or replace into signatures values (?, ?, ?)", row)


def replay_signature(root: Path, commit: str, of: str) -> None:
    """Somebody's true signature, of another commit."""
    with refs(root) as database:
        database.execute(
            "insert or replace into signatures select ?, key, value from signatures"
            " where commit_id = ?",
            [commit, of],
        )


def tag(root: Path, name: str, commit: str) -> None:
    with refs(root) as database:
        database.execute("insert or replace into refs values (?, 'tag', ?)", [name, commit])


def signed(root: Path) -> set[str]:
    """What there is a signature of."""
    with refs(root) as database:
        return {row[0] for row in database.execute("select commit_id from signatures")}


def forged_commit(
    store: EmbeddedStore,
    root: Path,
    changes: Mapping[str, bytes | None],
    run_key: str | None = None,
    time: str = "2026-01-01T00:00:00+00:00",
) -> str:
    """A commit on top of ``main`` with these files (None: gone), as the store itself makes one.

    Args:
        run_key: that of the work that it claims to be.
    """
    blobs, head = Blobs(root), store.resolve()
    tree = {entry.path: [entry.digest, entry.size] for entry in store.list(head)}
    for path, data in changes.items():
        tree.pop(path, None)
        if data is not None:
            tree[path] = [blobs.write(data), len(data)]
    body = {"tree": blobs.write(canonical_json(tree)), "parents": [head], "message": "forged"}
    body |= {"metadata": {"run_key": run_key} if run_key else {}, "time": time}
    return blobs.write(canonical_json(body))


def overwrite_blob(root: Path, digest: str, data: bytes) -> None:
    """The bytes of a stored file, in place."""
    Blobs(root).path(digest).write_bytes(data)


def as_if_passed(line: bytes) -> bytes:
    """A refused line of the ledger that says it passed."""
    entry = json.loads(line)
    decision = entry["decision"]
    for gate in decision["gates"]:
        gate["passed"] = True
    decision["passed"], decision["reason"], entry["reason"] = True, "all passed", "all passed"
    return canonical_json(entry)


def flip_a_byte(file: Path, place: int = -1) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(bytes(data))
