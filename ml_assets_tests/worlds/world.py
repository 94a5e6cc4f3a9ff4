"""A state folder with its outside world, driven through the command line as a user drives it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class World:
    """One state folder, with the outside world and the pipelines that it reads."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ML_ASSETS_")}
        inherited.pop("MLFLOW_TRACKING_URI", None)
        return {
            **inherited,
            "ML_ASSETS_HOME": str(self.root / "state"),
            "ML_ASSETS_SOURCES": str(self.sources),
            "ML_ASSETS_PIPELINES": str(self.pipelines),
        }

    @property
    def sources(self) -> Path:
        return self.root / "sources"

    @property
    def pipelines(self) -> Path:
        return self.root / "pipelines"

    def cli(self, *arguments: str, code: int = 0) -> str:
        """Run ml-assets, hold it to an exit code, and return all it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "ml_assets.cli.main", *arguments],
            env=self.environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, output
        return output

    def status(self, pipeline: str) -> dict[str, Any]:
        return json.loads(self.cli("status", pipeline, "--json"))
