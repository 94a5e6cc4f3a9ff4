"""Where a step, a sensor or a schedule finds its pipeline's state: a Dagster resource."""

from contextlib import suppress
from dataclasses import replace

import dagster as dg

from ml_assets.errors import SettingsError, StoreAway
from ml_assets.settings import Settings, read_settings
from ml_assets.store.online import SERVERS, open_online
from ml_assets.store.online.store import OnlineStore
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.s3.objects import S3Objects
from ml_assets.store.store_registry import register_store


class StoresResource(dg.ConfigurableResource):
    """The stores that the settings name: it has no field, so no run names another."""

    def settings(self) -> Settings:
        """The settings as they are now."""
        return read_settings()

    def open(self, declared: Pipeline, *, keeps_objects: bool = False) -> Pipeline:
        """A declared pipeline with the settings, and the winner, as they are when the step begins.

        Args:
            keeps_objects: the object store knows from then on that this house's records reach
                what lies there.
        """
        pipeline = replace(declared, settings=self.settings()).with_winner()
        if keeps_objects and isinstance(pipeline.objects, S3Objects):
            with suppress(StoreAway):  # then nothing is put there either
                register_store(pipeline.objects, pipeline.settings.snapshots)
        return pipeline


def online_store(pipeline: Pipeline, instance: dg.DagsterInstance) -> OnlineStore:
    """The online store, for a step of a run of this instance.

    Raises:
        SettingsError: it is a file, and the step's disk goes with its pod.
    """
    from ml_assets.adapters.executor import launches_jobs

    location = pipeline.settings.online
    if location.split("://")[0] not in SERVERS and launches_jobs(instance):
        raise SettingsError(
            f"ML_ASSETS_ONLINE is the file {location}, and this step runs in a pod, whose disk"
            " goes with it: nothing would be served. Set ML_ASSETS_ONLINE to a Redis server,"
            " redis://host:6379/0, in the environment of the pods; where it holds a password,"
            " in their Secret."
        )
    return open_online(location)
