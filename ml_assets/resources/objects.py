"""Shards, checkpoints, weights and reports, as a Dagster resource."""

from pathlib import Path

import dagster as dg

from ml_assets.storage.objects import LocalObjects


class ObjectsResource(dg.ConfigurableResource):
    """The object store; a local folder."""

    location: str

    def store(self) -> LocalObjects:
        return LocalObjects(Path(self.location))
