"""Tables, records and the ledger, as a Dagster resource."""

from functools import lru_cache
from pathlib import Path

import dagster as dg

from ml_assets.settings import (
    LakeFs,
    Signing,
    is_lakefs,
    read_lakefs,
    read_settings,
    read_signing,
    state_folder,
)
from ml_assets.store.open import open_snapshots
from ml_assets.store.snapshots import SnapshotStore


class SnapshotsResource(dg.ConfigurableResource):
    """The snapshot store that ML_ASSETS_SNAPSHOTS names: no field, so no run names another."""

    def store(self) -> SnapshotStore:
        """The store. A process has one of a server, which remembers what it has read."""
        location = read_settings().snapshots
        if is_lakefs(location):
            return _on_server(location, read_lakefs(), read_signing(), state_folder())
        return open_snapshots(location)


@lru_cache(maxsize=4)
def _on_server(location: str, server: LakeFs, signing: Signing, state: Path) -> SnapshotStore:
    """Another server, user, key or folder of keys is another store."""
    del server, signing, state
    return open_snapshots(location)
