"""Shards, checkpoints, weights and reports, as a Dagster resource."""

from contextlib import suppress
from pathlib import Path

import dagster as dg

from ml_assets.errors import StoreAway
from ml_assets.settings import read_settings
from ml_assets.storage.object_places import open_objects
from ml_assets.storage.objects import LocalObjects
from ml_assets.storage.s3_objects import S3Objects
from ml_assets.storage.tenants import enroll


class ObjectsResource(dg.ConfigurableResource):
    """The object store: a local folder, or a place on S3."""

    location: str
    cache: str = ""
    """Folder of this machine for what is fetched of S3."""

    def store(self) -> LocalObjects:
        """The store, which knows from then on that this house's records reach what lies there."""
        objects = open_objects(self.location, Path(self.cache))
        if isinstance(objects, S3Objects):
            with suppress(StoreAway):  # then nothing is put there either
                enroll(objects, read_settings().snapshots)
        return objects
