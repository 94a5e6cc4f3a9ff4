"""Opens the snapshot store and the object store at a location, here or on a server.

Adapters that a location does not need are not imported.
"""

import re
import uuid
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from ml_assets.settings import (
    LakeFs,
    Signing,
    is_lakefs,
    is_s3,
    read_lakefs,
    read_signing,
    state_folder,
)
from ml_assets.store.objects import LocalObjects
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
    """Whether a store is there: a question makes none. A server is asked when it is opened."""
    return is_lakefs(location) or (Path(location) / "refs.db").is_file()


def ephemeral_place(objects: str, purpose: str) -> str:
    """An address in a store on S3 that nobody else has.

    Args:
        purpose: a word.
    """
    return f"{objects}/{EPHEMERAL}/{purpose}-{uuid.uuid4().hex[:8]}"


def mark_of(address: str) -> str:
    """What tells a passing store from all others; empty for a store that stays."""
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
        from ml_assets.store.s3.objects import S3Objects

        return S3Objects(cache, location)
    return LocalObjects(Path(location))
