"""Tables, records and the ledger, as a Dagster resource."""

import dagster as dg

from ml_assets.storage.snapshots import SnapshotStore
from ml_assets.storage.stores import open_snapshots


class SnapshotsResource(dg.ConfigurableResource):
    """The snapshot store; a local path is the embedded one."""

    location: str

    def store(self) -> SnapshotStore:
        return open_snapshots(self.location)
