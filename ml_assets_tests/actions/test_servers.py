"""Servers that one signal ends together, and that no kill leaves behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = """
import sys
from pathlib import Path
from ml_assets.actions.servers import ServerProgram, Programs, stoppable

folder, seconds = Path(sys.argv[1]), sys.argv[2]
script = '''
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()} {child.pid}")
time.sleep(float(sys.argv[2]))
sys.exit(5)
'''
def program(name, seconds):
    command = (sys.executable, "-c", script, str(folder / name), seconds)
    return ServerProgram(name, command, log=folder / "log" if name == "other" else None)

code = 0
with stoppable(), Programs(lambda line: print(line, file=sys.stderr, flush=True)) as programs:
    programs.start(program("leading", sys.argv[2]))
    programs.start(program("other", sys.argv[3]))
    code = programs.wait()
sys.exit(code)
"""


def start(folder: Path, leading: float, other: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(folder), str(leading), str(other)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def started(folder: Path) -> list[int]:
    """The processes of both programs and what these started, once all are there."""
    files = [folder / "leading", folder / "other"]
    wait_until(lambda: all(file.exists() and file.read_text() for file in files))
    return [int(number) for file in files for number in file.read_text().split()]


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


INTERRUPTED = """
import os, signal, sys
from ml_assets.actions.servers import ServerProgram, Programs, stoppable

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

def swallow():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except Exception:
        pass

def drop():
    Dropped()

with stoppable(), Programs(print) as programs:
    {how}()
    programs.start(ServerProgram("late", (sys.executable, "-c", "import time; time.sleep(60)")))
    print("started")
    programs.wait()
"""


@pytest.mark.parametrize("how", ["swallow", "drop"])
def test_a_signal_that_comes_while_they_start_is_not_lost(how: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED.replace("{how}", how)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50)
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_ends_them_all_and_is_no_error(tmp_path: Path, number: int) -> None:
    with start(tmp_path, 60, 60) as serving:
        processes = started(tmp_path)
        serving.send_signal(number)
        assert serving.wait(60) == 0
    assert not any(alive(process) for process in processes)


def test_a_kill_leaves_none_behind(tmp_path: Path) -> None:
    with start(tmp_path, 60, 60) as serving:
        processes = started(tmp_path)
        assert all(alive(process) for process in processes)
        serving.kill()
    wait_until(lambda: not any(alive(process) for process in processes))


def test_the_end_of_the_leading_one_is_the_end_of_all_with_its_code(tmp_path: Path) -> None:
    with start(tmp_path, 2, 60) as serving:
        processes = started(tmp_path)
        assert serving.wait(60) == 5
    assert not any(alive(process) for process in processes)


def test_the_end_of_another_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    with start(tmp_path, 60, 0.5) as serving:
        processes = started(tmp_path)
        assert serving.stderr is not None
        line = serving.stderr.readline()
        assert line == f"other ended with code 5; see {tmp_path / 'log'}\n"
        assert alive(processes[0])
        serving.terminate()
        assert serving.wait(60) == 0
