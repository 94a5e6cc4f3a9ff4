"""Programs that a fresh interpreter runs: what it loads, and what it costs."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def said_by(
    program: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    given: str = "",
) -> str:
    """All that the program prints; it ends well, or the test fails with what it said."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        input=given,
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
