"""Dagster's resources: the stores of a pipeline, and the launcher of the training program."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import PrivateAttr

from ml_assets.errors import StoreAway
from ml_assets.settings import Settings, is_s3, read_cluster, read_settings
from ml_assets.store.pipeline_context import Pipeline

if TYPE_CHECKING:
    from ml_assets.launch.launcher import Launcher


PID_TAG = "ml_assets/pid"
"""The process of a run that the command line executes."""
_CANCELLED = (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)


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
            from ml_assets.store.open import register_store

            with suppress(StoreAway):  # then nothing is put there either
                register_store(pipeline.objects, pipeline.settings.snapshots)
        return pipeline


class LauncherResource(dg.ConfigurableResource):
    """Runs training sessions as local processes or as Jobs of a cluster: ML_ASSETS_LAUNCHER.

    It has no field: whoever launches a run could set it, and with it what is read and written.
    """

    _goes_on: Callable[[], bool] | None = PrivateAttr(default=None)
    """Not a function by default: pydantic would bind that to the resource, whatever is set here."""

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Know the run that asks: what happens to its Jobs hangs on how it ends."""
        if context.instance is not None and context.run is not None:
            self._goes_on = partial(outlives, context.instance, context.run.run_id)

    def launcher(self, pipeline: Pipeline) -> "Launcher":
        """The launcher that the settings ask for.

        Raises:
            SettingsError: one that it needs is missing.
        """
        settings, objects = pipeline.settings, pipeline.objects
        if settings.launcher == "kubernetes":
            from ml_assets.launch.kubernetes.launcher import KubernetesLauncher
            from ml_assets.store.embedded.trust import given_keys
            from ml_assets.store.s3.objects import S3Objects

            if isinstance(objects, S3Objects):
                goes_on = self._goes_on or (lambda: False)
                return KubernetesLauncher(
                    objects, read_cluster(), given_keys, settings.checkpoints, goes_on
                )
        from ml_assets.launch.local.launcher import LocalLauncher

        return LocalLauncher(objects, checkpoints=settings.checkpoints)


def outlives(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Return whether a Job goes on when the process of its run is interrupted.

    A run worker that is moved to another machine, or killed, comes back and adopts it. Who cancels
    a run, or presses Ctrl-C at the command line, means the Job.
    """
    run = instance.get_run_by_id(run_id)
    return run is not None and PID_TAG not in run.tags and run.status not in _CANCELLED
