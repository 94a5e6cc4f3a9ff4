"""A run whose process is gone is marked as failed, also where its number is in use again."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.adapters.runs import AT_WORK, PID_TAG, PIPELINE_TAG, mark_dead, runs_on


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """With Dagster's default launcher."""
    quiet = {"telemetry": {"enabled": False}}
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=quiet) as instance:
        yield instance


@pytest.fixture
def stranger() -> Iterator[int]:
    """The number of a process that works on no run."""
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def worker() -> Iterator[int]:
    """The number of a process as Dagster's launcher starts one."""
    code = "import time; spawn_main = time.sleep; spawn_main(60)"
    process = subprocess.Popen([sys.executable, "-c", code])
    yield process.pid
    process.kill()
    process.wait()


def at_work(instance: dg.DagsterInstance, pid: int, *, launched: bool = True) -> dg.RunRecord:
    """A run that this process works on: as the launcher told, or a command line's tag says."""
    tags = {PIPELINE_TAG: "irises", **({} if launched else {PID_TAG: str(pid)})}
    run = dg.DagsterRun("train", status=dg.DagsterRunStatus.STARTED, tags=tags)
    instance.add_run(run)
    if launched:
        instance.report_engine_event(f"Started process for run (pid: {pid}).", run)
    (record,) = runs_on(instance, "irises", AT_WORK)
    return record


def is_dead(instance: dg.DagsterInstance, record: dg.RunRecord) -> bool:
    marked = mark_dead(instance, [record])
    return marked == [record.dagster_run.run_id]


def test_a_run_whose_workers_number_a_stranger_has_is_dead(
    instance: dg.DagsterInstance, stranger: int
) -> None:
    assert is_dead(instance, at_work(instance, stranger))
    assert runs_on(instance, "irises", AT_WORK) == []


def test_a_run_whose_worker_lives_is_alive(instance: dg.DagsterInstance, worker: int) -> None:
    assert not is_dead(instance, at_work(instance, worker))


def test_a_run_of_a_command_line_that_lives_is_alive_whatever_it_is_called(
    instance: dg.DagsterInstance,
) -> None:
    assert not is_dead(instance, at_work(instance, os.getppid(), launched=False))


def test_a_run_whose_process_ended_is_dead(instance: dg.DagsterInstance) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert is_dead(instance, at_work(instance, ended.pid))
