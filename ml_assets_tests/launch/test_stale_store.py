"""After a restart nobody reads the addresses of the dead (pytorch issue 135712)."""

import subprocess
import sys
from pathlib import Path

import pytest

from ml_assets.launch.local.process import environment

LATE_RANK = Path(__file__).parent / "fakes" / "late_rank.py"
SHARED = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"


def started_twice(env, logs):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*torchrun, "--nproc-per-node=2", "--max-restarts=1", f"--log-dir={logs}", str(LATE_RANK)],
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.daemon
def test_a_rank_that_comes_late_after_a_restart_is_met(tmp_path):
    done = started_twice(environment(1), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "rank 0 met the others in start 1" in done.stdout
    assert "rank 1 met the others in start 1" in done.stdout


@pytest.mark.chaos
def test_with_a_shared_store_it_is_not(tmp_path):
    """The fault itself: if torch mends it, the variable may go."""
    env = {name: value for name, value in environment(1).items() if name != SHARED}
    assert started_twice(env, tmp_path).returncode != 0
