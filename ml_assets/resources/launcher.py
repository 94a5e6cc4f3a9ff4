"""Starts the training program, as a Dagster resource."""

from functools import partial
from pathlib import Path

import dagster as dg

from ml_assets.launch.launcher import Launcher
from ml_assets.launch.local import LocalLauncher
from ml_assets.settings import read_settings
from ml_assets.storage.object_places import open_objects
from ml_assets.storage.trust import keys_of


class LauncherResource(dg.ConfigurableResource):
    """Runs training sessions as local processes."""

    objects: str
    cache: str = ""
    """Folder of this machine for what is fetched of S3."""
    checkpoints: str | None = None

    def launcher(self) -> Launcher:
        # not a field: who launches a run may set those, and with them whose signature counts
        keys = partial(keys_of, read_settings().snapshots)
        objects = open_objects(self.objects, Path(self.cache))
        return LocalLauncher(objects, checkpoints=self.checkpoints, keys=keys)
