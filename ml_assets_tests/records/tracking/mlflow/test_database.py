"""The database of MLflow is made once, whole, by whoever is first."""

import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ml_assets.records.tracking.mlflow import Logged, Tracking
from ml_assets_tests.records.tracking.mlflow.conftest import SESSION

OPEN = """
import sys
from pathlib import Path
from ml_assets.records.tracking.mlflow import Tracking
home = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(Tracking(f"sqlite:///{home}/mlflow.db", home).open_run("delays", sys.argv[2], {}, {}))
"""


@pytest.mark.daemon
def test_two_processes_that_open_a_fresh_database_both_succeed_with_one_run(tmp_path):
    command = [sys.executable, "-c", OPEN, str(tmp_path), SESSION]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, **pipe) for _ in range(2)]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    told = [process.communicate("go\n", timeout=120)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert len(told[0]) == 32, told
    assert told[0] == told[1]
    assert not list(tmp_path.glob(".mlflow.db*"))


@pytest.mark.daemon
def test_a_process_killed_while_it_makes_the_database_leaves_none(tmp_path):
    command = [sys.executable, "-c", OPEN, str(tmp_path), SESSION]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdin.write("go\n")
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while not tables(tmp_path / ".mlflow.db.new") and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / ".mlflow.db.new").exists()
    assert not (tmp_path / "mlflow.db").exists()

    tracking = Tracking(f"sqlite:///{tmp_path}/mlflow.db", tmp_path)
    assert tracking.ensure_database() == Logged()
    assert not list(tmp_path.glob(".mlflow.db*"))


def tables(file: Path) -> int:
    if not file.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=0) as database:
            return len(database.execute("select name from sqlite_master").fetchall())
    except sqlite3.OperationalError:
        return 0
    finally:
        if "database" in locals():
            database.close()
