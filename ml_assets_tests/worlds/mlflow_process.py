"""A real MLflow server over HTTP, that a test can kill and start again."""

import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from ml_assets_tests.worlds.world import free_ports

_QUICK = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


@dataclass
class MlflowProcess:
    """One port and one database, whichever process serves them."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        (self.port,) = free_ports(1)
        self.uri = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        store = f"sqlite:///{self.folder}/mlflow.db"
        where = ["--backend-store-uri", store, "--artifacts-destination", str(self.folder / "made")]
        at = ["--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        with (self.folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *where, *at],
                env={**os.environ, **_QUICK},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 90
        while not self._answers():
            assert time.monotonic() < deadline, (self.folder / "log.txt").read_text()[-2000:]
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL to all its processes; quiet where it does not run."""
        if self.process is not None:
            os.killpg(self.process.pid, 9)
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False
