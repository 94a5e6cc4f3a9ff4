"""Which snapshot store a location names: a folder, or a repository on a lakeFS server."""

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from ml_assets.settings import (
    LakeFs,
    Signing,
    is_lakefs,
    read_lakefs,
    read_signing,
    state_folder,
)
from ml_assets.store.snapshots import SnapshotStore, utc_now


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
