"""What a process costs, with its children: wall and CPU seconds, and what it printed."""

import os
import resource
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """Seconds of a process."""

    cpu: float
    wall: float
    printed: str = ""


def cost(
    command: Sequence[str], settings: Mapping[str, str], folder: str | Path | None = None
) -> Cost:
    """Run a command to its end, with settings beside the environment's.

    Raises:
        subprocess.CalledProcessError: it ended with another exit code than 0; its errors are shown.
    """
    environment = {**os.environ, **settings}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else all of it is compiled each time
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command, env=environment, cwd=folder, check=True, text=True, stdout=subprocess.PIPE
    )
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, wall, done.stdout)
