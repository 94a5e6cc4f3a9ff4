"""A repository on a lakeFS server as far as we trust it: a commit holds what its manifest signs."""

import hashlib
import itertools
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TypeVar

import polars as pl

from ml_assets.errors import StorageError, UntrustedState
from ml_assets.settings import lakefs_place, read_lakefs
from ml_assets.spec.base import canonical_json
from ml_assets.store.embedded.trees import Tree, entry_at
from ml_assets.store.embedded.trust import given_keys, require_vouched
from ml_assets.store.lakefs.api import LakeFsApi, Pause, Recorded
from ml_assets.store.lakefs.gateway import S3Gateway
from ml_assets.store.signing import Keys, Signature
from ml_assets.store.snapshots import MAIN, RUN_KEY, CommitId

PRESIGNED_BYTES = 5 << 30
"""A larger file goes through the S3 gateway, in parts: S3 takes no more in one request."""
_SMALL = 1 << 16
"""Bytes up to which a file that was read is remembered."""
_REMEMBERED = 256 << 20
"""Bytes of them in all: some 70,000 records."""
_STATES = 8
"""States that are remembered: one of 10⁵ files takes some 45 MB of memory."""
ReceivedT = TypeVar("ReceivedT")


class LruCache:
    """Up to so many bytes in all; what was not used for longest goes first. Threads may share it.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, digest: str) -> bytes | None:
        """The content of a digest; None where it is not known, or not any more."""
        with self._lock:
            found = self._contents.get(digest)
            if found is not None:
                self._contents.move_to_end(digest)
            return found

    def keep(self, digest: str, content: bytes) -> None:
        """Remember a content that was held to its digest."""
        with self._lock:
            if digest in self._contents:
                return
            self._contents[digest] = content
            self._held += len(content)
            while self._held > self._most:
                _, gone = self._contents.popitem(last=False)
                self._held -= len(gone)


MANIFEST = "_ml_assets/manifest.json"
"""The signed list of what a state holds: path -> digest and size.

lakeFS has no compare-and-swap on a branch, and its checksums are no proof of content. One file that
every publish changes gives both: a merge that did not see the one before conflicts in it, and
whoever reads holds every file to the digest that a trusted key signed.
"""
_KIND = "application/vnd.ml_assets.manifest"
_SCHEMA = 1


@dataclass(frozen=True)
class State:
    """Holds what a commit holds, and the work that made it."""

    tree: Tree = field(default_factory=dict)
    run_key: str = ""
    base: str = ""
    """The commit that it was made on top of."""
    branch: str = ""
    """The branch of the home that made it; empty where it was made before that was kept."""


def seal(state: State, keys: Keys) -> bytes:
    """The manifest of a state, signed where a key is set."""
    content = {
        "schema": _SCHEMA,
        "tree": {path: list(entry) for path, entry in state.tree.items()},
        "run_key": state.run_key,
        "base": state.base,
        "branch": state.branch,
    }
    signature = keys.sign(keys.of_store(_KIND), canonical_json(content))
    signed = [signature.key, signature.value] if signature else None
    return canonical_json({"state": content, "signature": signed})


def unseal(data: bytes, keys: Keys, what: str) -> State:
    """The state that a manifest tells of.

    Args:
        what: names it, and where it is, in an error.

    Raises:
        UntrustedState: its signature does not count.
        StorageError: it is no manifest of this version.
    """
    try:
        sealed = json.loads(data)
        content, signed = sealed["state"], sealed["signature"]
        signature = None if signed is None else Signature(str(signed[0]), str(signed[1]))
        tree = {path: (digest, size) for path, (digest, size) in content["tree"].items()}
        state = State(tree, content["run_key"], content["base"], content.get("branch", ""))
        known = content["schema"] == _SCHEMA
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise StorageError(f"{what}, whose manifest {MANIFEST} is damaged: {error!r}.") from error
    require_vouched(keys, _KIND, canonical_json(content), signature, what)
    if not known:
        raise StorageError(f"{what}, whose manifest is of schema {content['schema']!r}, not 1.")
    return state


class LakeFsRepository:
    """One branch of one repository.

    Raises:
        SettingsError: what reaches the server is not set, or its client not installed.
    """

    def __init__(self, location: str, pause: Pause) -> None:
        name, self.branch = lakefs_place(location)
        server = read_lakefs()
        self.location = location
        self.pause = pause
        self.api = LakeFsApi(server, name, pause)
        self.keys = given_keys()
        self._gateway = S3Gateway(server, name)
        self.state = lru_cache(maxsize=_STATES)(self._read_state)
        self._verify = lru_cache(maxsize=4096)(self._verified)
        self._small = LruCache(_REMEMBERED)

    def resolve(self, ref: str) -> CommitId:
        """The commit of ``main`` (our branch), a tag or a commit id, held to its signature."""
        commit = self.api.head(self.branch) if ref == MAIN else self.api.tagged(ref)
        if commit is None and len(ref) == 64 and ref.isalnum():
            recorded = self.api.recorded(ref)
            commit = recorded.id if recorded else None
        if commit is None and ref == MAIN:
            raise StorageError(
                f"There is no branch {self.branch} in the repository {self.api.repository} of"
                f" {self.api.server.endpoint}. Create it there, or correct ML_ASSETS_SNAPSHOTS."
            )
        if commit is None:
            raise StorageError(f"{ref!r} is not a tag or commit of {self.location}")
        self.state(commit)
        return commit

    def tree(self, commit: CommitId) -> Tree:
        """Everything of ours in a commit, as it was signed; do not change it."""
        return self.state(commit).tree

    def entry(self, commit: CommitId, path: str) -> tuple[str, int]:
        """Digest and size of a file.

        Raises:
            StorageError: the commit has none.
        """
        return entry_at(self.tree(commit), path, f"Commit {commit[:12]} of {self.location}")

    def read_bytes(self, commit: CommitId, path: str) -> bytes:
        """A file's content, held to what was signed."""
        digest, size = self.entry(commit, path)
        known = self._small.get(digest)
        if known is not None:
            return known
        data = self._received(commit, path, b"".join)
        self._check(commit, path, hashlib.sha256(data).hexdigest())
        if size <= _SMALL:
            self._small.keep(digest, data)
        return data

    def scan(self, commit: CommitId, path: str) -> pl.LazyFrame:
        """A Parquet file through the S3 gateway; read whole once before, to verify it."""
        self._verify(commit, path)
        return pl.scan_parquet(
            self._gateway.address(commit, path),
            storage_options=self._gateway.options,
            credential_provider=None,
            glob=False,
        )

    def write_to(self, commit: CommitId, path: str, target: Path) -> None:
        """Write a file's content to a local one, and hold it to what was signed."""

        def write(chunks: Iterable[bytes]) -> str:
            with target.open("wb") as handle:
                return _digest(_each_to(handle.write, chunks))

        self._check(commit, path, self._received(commit, path, write))

    def upload(self, branch: str, path: str, file: Path) -> None:
        """Stage a file on a branch: to the object store itself where the server allows it."""
        direct = file.stat().st_size <= PRESIGNED_BYTES and self.api.presigns
        upload = self.api.upload_presigned if direct else self._gateway.upload
        upload(branch, path, file)

    def published_since(self, base: CommitId, head: CommitId, run_key: str) -> Recorded | None:
        """The commit after ``base`` that published this work, held to its manifest: what lakeFS
        shows of a commit is anybody's word."""
        if head == base:
            return None
        since = itertools.takewhile(lambda each: each.id != base, self.api.log(head))
        for each in since:
            if each.metadata.get(RUN_KEY) == run_key and self.state(each.id).run_key == run_key:
                return each
        return None

    def _verified(self, commit: CommitId, path: str) -> None:
        self._check(commit, path, self._received(commit, path, _digest))

    def _received(
        self, commit: CommitId, path: str, receive: Callable[[Iterable[bytes]], ReceivedT]
    ) -> ReceivedT:
        self.entry(commit, path)
        found = self.api.read(commit, path, receive)
        if found is None:
            raise StorageError(
                f"{path} is lost: commit {commit[:12]} of {self.location} does not have it, its"
                " signed manifest names it. Make the asset again."
            )
        return found

    def _check(self, commit: CommitId, path: str, found: str) -> None:
        expected, _ = self.entry(commit, path)
        if found != expected:
            raise StorageError(
                f"{path} is damaged: at commit {commit[:12]} of {self.location} it has the"
                f" checksum {found[:12]}, signed is {expected[:12]}. Make the asset again."
            )

    def _read_state(self, commit: CommitId) -> State:
        data = self.api.read(commit, MANIFEST, b"".join)
        if data is None:
            self._require_untouched(commit)
            return State()
        return unseal(data, self.keys, f"{self.location} is at commit {commit[:12]}")

    def _require_untouched(self, commit: CommitId) -> None:
        """A state with no manifest is empty only where there never was one."""
        for each in self.api.log(commit):
            if RUN_KEY in each.metadata:
                raise UntrustedState(
                    f"{self.location} is at commit {commit[:12]}, which has no signed manifest"
                    f" ({MANIFEST}); commit {each.id[:12]} before it has one. Find out who removed"
                    " it, and revert that in lakeFS."
                )


def _digest(chunks: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for chunk in chunks:
        found.update(chunk)
    return found.hexdigest()


def _each_to(write: Callable[[bytes], object], chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        write(chunk)
        yield chunk
