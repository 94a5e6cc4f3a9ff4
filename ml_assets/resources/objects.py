"""Shards, checkpoints, weights and reports, as a Dagster resource."""

from pathlib import Path

import dagster as dg

from ml_assets.storage.object_places import open_objects
from ml_assets.storage.objects import LocalObjects


class ObjectsResource(dg.ConfigurableResource):
    """The object store: a local folder, or a place on S3."""

    location: str
    cache: str = ""
    """Folder of this machine for what is fetched of S3."""

    def store(self) -> LocalObjects:
        return open_objects(self.location, Path(self.cache))
