"""The tests' own scheduler: a process that dies fails its test, and the others are run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCHEDULER = """\
from xdist.scheduler import LoadFileScheduling
from ml_assets_tests.scheduling import ByWorld

class ByFile(ByWorld):
    _split_scope = LoadFileScheduling._split_scope

def pytest_xdist_make_scheduler(config, log):
    return ByFile(config, log)
"""
TESTS = """\
import os, signal, time
import pytest

@pytest.mark.parametrize("n", range({count}))
def test_some(n):
    time.sleep(0.05)
    with open(r"{log}", "a") as log:
        print({file}, n, file=log)
    if ({file}, n) == {dies}:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("dies", [(2, 2), (3, 3), (4, 0)])
def test_every_test_is_run_once_though_a_process_dies(
    tmp_path: Path, dies: tuple[int, int]
) -> None:
    (tmp_path / "conftest.py").write_text(SCHEDULER)
    counts, log = {0: 4, 1: 4, 2: 4, 3: 4, 4: 1}, tmp_path / "log"
    for file, count in counts.items():
        said = TESTS.format(count=count, file=file, dies=dies, log=log)
        (tmp_path / f"test_{file}.py").write_text(said)
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "2", "--dist", "loadfile", "."]
    done = subprocess.run(
        command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=120
    )
    assert "1 failed, 16 passed" in done.stdout
    every = [f"{file} {n}" for file, count in counts.items() for n in range(count)]
    assert sorted(log.read_text().splitlines()) == every
