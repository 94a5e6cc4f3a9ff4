"""Starts the training program, as a Dagster resource."""

from pathlib import Path

import dagster as dg

from ml_assets.launch.launcher import Launcher
from ml_assets.launch.local import LocalLauncher


class LauncherResource(dg.ConfigurableResource):
    """Runs training sessions as local processes."""

    objects: str
    checkpoints: str | None = None

    def launcher(self) -> Launcher:
        return LocalLauncher(Path(self.objects), checkpoints=self.checkpoints)
