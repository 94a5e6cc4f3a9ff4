"""Where a step, a sensor or a schedule finds its pipeline's state: a Dagster resource."""

from contextlib import suppress
from dataclasses import replace

import dagster as dg

from ml_assets.errors import StoreAway
from ml_assets.settings import Settings, is_s3, read_settings
from ml_assets.store.pipeline_context import Pipeline


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
        if keeps_objects and is_s3(pipeline.settings.objects):
            from ml_assets.store.store_registry import register_store

            with suppress(StoreAway):  # then nothing is put there either
                register_store(pipeline.objects, pipeline.settings.snapshots)
        return pipeline
