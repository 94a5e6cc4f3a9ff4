"""The supervisor alone: exit codes pass, and it ends with a launcher that was gone before."""

import os
import subprocess
import sys

import pytest

from ml_assets.launch.local import supervisor
from ml_assets.launch.local.process import ChildProcess, environment


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("import sys; sys.exit(0)", 0),
        ("import sys; sys.exit(66)", 66),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.kill(os.getpid(), 15)", -15),
    ],
)
def test_the_end_of_the_command_is_passed_on(tmp_path, until, program, code):
    child = ChildProcess([sys.executable, "-c", program], 1, tmp_path / "log.txt")
    assert until(lambda: (child.exit_code(),) if child.exit_code() is not None else None) == (code,)


def test_a_launcher_that_died_before_the_supervisor_looked_is_noticed():
    sleeper = [sys.executable, "-c", "import time; time.sleep(3600)"]
    gone = "1" if os.getpid() != 1 else "2"
    ended = subprocess.run(
        [sys.executable, "-I", supervisor.__file__, gone, "20", *sleeper],
        check=False,
        start_new_session=True,
    )
    assert ended.returncode in (supervisor.SIGNALLED + 9, -9)


def test_the_program_inherits_no_descriptor_of_ours(tmp_path, until):
    with (tmp_path / "lock").open("w") as lock:
        look = f"import os,sys; os.fstat({lock.fileno()})"
        child = ChildProcess([sys.executable, "-c", look], 1, tmp_path / "log.txt")
        assert until(child.exit_code) == 1
    assert "Bad file descriptor" in (tmp_path / "log.txt").read_text()


def test_what_is_not_on_the_list_is_not_passed_on():
    assert "AWS_SESSION_TOKEN" not in environment(1, {"AWS_SESSION_TOKEN": "hush"})
    assert "AWS_SESSION_TOKEN" in environment(1, {"AWS_SESSION_TOKEN": "hush"}, s3=True)
    given = {"PATH": "/bin", "LC_ALL": "C", "NCCL_DEBUG": "INFO", "DATABASE_PASSWORD": "hush"}
    assert set(environment(3, given)) == {
        "PATH",
        "LC_ALL",
        "NCCL_DEBUG",
        "OMP_NUM_THREADS",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
        "MALLOC_MMAP_THRESHOLD_",
        "MALLOC_TRIM_THRESHOLD_",
    }
