"""Shards, checkpoints, weights and reports, as a Dagster resource."""

from contextlib import suppress

import dagster as dg

from ml_assets.errors import StoreAway
from ml_assets.settings import read_settings
from ml_assets.store.objects import LocalObjects
from ml_assets.store.open import open_objects
from ml_assets.store.s3.objects import S3Objects
from ml_assets.store.store_registry import register_store


class ObjectsResource(dg.ConfigurableResource):
    """The object store that ML_ASSETS_OBJECTS names: no field, so no run names another."""

    def store(self) -> LocalObjects:
        """The store, which knows from then on that this house's records reach what lies there."""
        settings = read_settings()
        objects = open_objects(settings.objects, settings.cache)
        if isinstance(objects, S3Objects):
            with suppress(StoreAway):  # then nothing is put there either
                register_store(objects, settings.snapshots)
        return objects
