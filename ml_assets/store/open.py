"""Opens the snapshot store and the object store at a location, here or on a server.

Every snapshot store that uses an object store on S3 leaves its name there, and with two names
house-keeping deletes nothing but scratch.
"""

import os
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from ml_assets.errors import counted
from ml_assets.settings import (
    LakeFs,
    Signing,
    is_lakefs,
    is_s3,
    lakefs_place,
    read_lakefs,
    read_signing,
    state_folder,
)
from ml_assets.spec.base import canonical_json, digest_of
from ml_assets.store.objects import LocalObjects, write_whole
from ml_assets.store.s3.objects import S3Objects
from ml_assets.store.snapshots import SnapshotStore, utc_now

EPHEMERAL = "scratch"
"""Top folder of a store on S3 that holds stores which a command makes for itself, and deletes."""
_EPHEMERAL = re.compile(rf"/{EPHEMERAL}/[a-z]+-([0-9a-f]{{8}})")


def open_snapshots(location: str, clock: Callable[[], datetime] = utc_now) -> SnapshotStore:
    """The store at a location; a local one is made at first use.

    Args:
        location: a folder, or ``lakefs://repository[/branch]``.
        clock: gives the time of a commit.

    Raises:
        SettingsError: what reaches the lakeFS server is not set, or its client not installed.
    """
    if is_lakefs(location):
        from ml_assets.store.lakefs.store import LakeFsStore

        return LakeFsStore(location, clock)
    from ml_assets.store.embedded.store import EmbeddedStore

    return EmbeddedStore(Path(location), clock)


def shared_snapshots(location: str) -> SnapshotStore:
    """The store at a location. A process has one of a server, which remembers what it has read."""
    if is_lakefs(location):
        return _on_server(location, read_lakefs(), read_signing(), state_folder())
    return open_snapshots(location)


@lru_cache(maxsize=4)
def _on_server(location: str, server: LakeFs, signing: Signing, state: Path) -> SnapshotStore:
    """Another server, user, key or folder of keys is another store."""
    del server, signing, state
    return open_snapshots(location)


def has_snapshots(location: str) -> bool:
    """Return whether a store is there, without making one; a server is asked when opened."""
    return is_lakefs(location) or (Path(location) / "refs.db").is_file()


def ephemeral_place(objects: str, purpose: str) -> str:
    """An address in a store on S3 that nobody else has.

    Args:
        purpose: a word.
    """
    return f"{objects}/{EPHEMERAL}/{purpose}-{uuid.uuid4().hex[:8]}"


def mark_of(address: str) -> str:
    """Return what tells an ephemeral store from all others; empty for a store that stays."""
    found = _EPHEMERAL.search(address)
    return found[1] if found else ""


def open_objects(location: str, cache: Path) -> LocalObjects:
    """The object store that a folder or ``s3://bucket/prefix`` names.

    Args:
        cache: folder for what was fetched of S3; a local store needs none.

    Raises:
        SettingsError: S3 is asked for, and boto3 is not installed.
    """
    if is_s3(location):
        return S3Objects(cache, location)
    return LocalObjects(Path(location))


REGISTRY = "stores"
_IDENTITY = "identity"
_REGISTERED = ".registered"
"""File in the cache: what this home has registered."""


def identity_of(snapshots: str) -> str:
    """A name that no other snapshot store has; a local one is given it here."""
    if is_lakefs(snapshots):
        place = [read_lakefs().endpoint, *lakefs_place(snapshots)]
        return digest_of({"lakefs": place})[:32]
    file = Path(snapshots) / _IDENTITY
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        draft = file.with_name(f".{_IDENTITY}.{uuid.uuid4().hex}")
        draft.write_text(uuid.uuid4().hex)
        with suppress(FileExistsError):  # another process was first: its name counts
            os.link(draft, file)
        draft.unlink()
    return file.read_text().strip()


def register_store(objects: LocalObjects, snapshots: str, *, again: bool = False) -> None:
    """Say in a store on S3 that a snapshot store reaches what lies there; a local one has no other.

    Args:
        again: also where it was said before: so that others see that it is alive.

    Raises:
        StoreAway: nobody was told.
    """
    if not isinstance(objects, S3Objects):
        return
    identity, told = identity_of(snapshots), objects.root / _REGISTERED
    if not again and told.is_file() and told.read_text() == identity:
        return
    name = f"{REGISTRY}/{identity}.json"
    objects.place.write(name, canonical_json({"snapshots": snapshots}))
    told.parent.mkdir(parents=True, exist_ok=True)
    write_whole(told, identity.encode())


def other_stores(objects: S3Objects, snapshots: str) -> str:
    """Return which other snapshot stores use a store on S3, and what to do; empty where none does.

    Raises:
        StoreAway: nobody can tell.
    """
    own = f"{REGISTRY}/{identity_of(snapshots)}.json"
    others = [item for item in objects.place.items(f"{REGISTRY}/") if item.name != own]
    if not others:
        return ""
    uri = objects.place.uri
    names = ", ".join(f"{uri}/{item.name} ({item.changed:%d %B %Y})" for item in others)
    return (
        f"{counted(len(others), 'other snapshot store', 'use')} {uri}, too. This command cannot see"
        " what their records need, so only scratch is deleted. Give each snapshot store its own"
        " ML_ASSETS_OBJECTS, or set the same ML_ASSETS_SNAPSHOTS everywhere. If a store no longer"
        f" exists, delete its entry: {names}"
    )
