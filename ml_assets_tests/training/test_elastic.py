"""Ranks begin as forks of torchrun, and are its ranks in all else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ml_assets.spec.training_program import World
from ml_assets.spec.training_program.exit_codes import EXIT_BAD_REQUEST, codes_in
from ml_assets.spec.training_program.start import Start, variables

FORKED = sys.platform == "linux" and not torch.cuda.is_available()


@pytest.mark.skipif(not FORKED, reason="where there is a GPU a rank is an interpreter of its own")
def test_a_rank_needs_no_interpreter_and_its_code_and_words_come_through(tmp_path: Path) -> None:
    logs = tmp_path / "ranks"
    start = Start((sys.executable, "-m", "ml_assets.training"), World(procs=2), logs, 4, restarts=1)
    command = start.command(["train", "--request", str(tmp_path / "missing.json")])
    none = {"PYTHON_EXEC": "/bin/false"}  # what torchrun would execute
    done = subprocess.run(
        command,
        env={**os.environ, **variables(1), **none},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert set(codes_in(done.stderr)) - {-15} == {EXIT_BAD_REQUEST}
    assert f"]:bad request {tmp_path}/missing.json" in done.stderr, "named as its rank's"
