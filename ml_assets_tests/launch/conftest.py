"""A launcher of the stand-in program, whose faults a test plans."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets_tests.launch.real import train_job, write_set

_LAUNCHING = Path(__file__).parent / "fakes" / "launching.py"
_found = importlib.util.spec_from_file_location("launching_for_tests", _LAUNCHING)
assert _found is not None and _found.loader is not None
launching: Any = importlib.util.module_from_spec(_found)
_found.loader.exec_module(launching)


def wait_for(condition, seconds=150.0):
    """The condition's first true value. The limit is for what never comes on a busy machine."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"nothing came in {seconds} s"
        time.sleep(0.02)
    return value


def alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        if sys.platform == "linux":
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@dataclass
class Stage:
    """Objects, a plan for the stand-in, and what its launchers told."""

    folder: Path
    events: list[Any] = field(default_factory=list)

    @property
    def objects(self):
        return self.folder / "objects"

    @property
    def plan_file(self):
        return self.folder / "plan.json"

    @property
    def session(self):
        """The folder of the one session there is."""
        (found,) = (self.objects / "sessions").iterdir()
        return found

    @property
    def attempts(self):
        return sorted(p.name for p in self.session.glob("attempts/*"))

    def plan(self, **plan):
        self.plan_file.write_text(json.dumps(plan))

    def launcher(self, grace=20.0):
        return launching.launcher(self.objects, self.plan_file, grace)

    def train(self, on_event=None, *, grace=20.0, changes=None, **more):
        job = launching.job(**(changes or {}))
        return self.launcher(grace).train(job, on_event or self.events.append, **more)

    def launch_elsewhere(self):
        """The same training launched by another process; its events are lines of its stdout."""
        return subprocess.Popen(
            [sys.executable, str(_LAUNCHING), str(self.objects), str(self.plan_file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )

    def kinds(self):
        return [event.kind for event in self.events]


@pytest.fixture
def stage(tmp_path):
    found = Stage(tmp_path)
    found.plan(steps=3)
    return found


@pytest.fixture
def until():
    return wait_for


@pytest.fixture
def is_alive():
    return alive


@pytest.fixture(scope="session")
def training_set(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("sets"))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory, training_set):
    """A training on two processes with nothing in its way: the launcher, its result, its events."""
    launcher, events = LocalLauncher(tmp_path_factory.mktemp("undisturbed")), []
    return launcher, launcher.train(train_job(training_set), events.append), events
