"""The recovery ladder, rung by rung, on real processes: kills do not show in the weights."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from ml_assets.errors import TrainingInterrupted
from ml_assets.launch import stall_detection
from ml_assets.launch.local.launcher import LocalLauncher, LocalRunner
from ml_assets.launch.local.process import environment
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.session_launcher import train_request
from ml_assets.spec.training_program import World
from ml_assets_tests.launch.real import STEPS, named, numbered, ranks, torchruns, train_job

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")


class Saboteur:
    """Does something to the processes when a checkpoint of at least this step is told.

    Once in an attempt, and in so many attempts: a checkpoint told later may be of the dead.
    """

    def __init__(self, step, do, times=1):
        self.events, self.done = [], 0
        self._step, self._do, self._times = step, do, times

    def __call__(self, event):
        self.events.append(event)
        if event.kind != "checkpoint" or event.step < self._step:
            return
        if event.attempt == self.done + 1 <= self._times:
            self.done += 1
            self._do()


def kill(pids, number=signal.SIGKILL):
    for pid in pids:
        os.kill(pid, number)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_is_started_again_within_the_attempt_and_ends_in_the_same_bits(
    tmp_path, training_set, undisturbed, rank
):
    told = Saboteur(15, lambda: kill([ranks()[rank]]))
    result = LocalLauncher(tmp_path / "objects").train(train_job(training_set), told)
    assert (result.attempt, result.step) == (1, STEPS)
    assert result.model.digest == undisturbed[1].model.digest
    assert "started again (restart 1 in attempt 1)" in named(told.events, "warning")[0].message
    assert any("resumed at step" in event.message for event in named(told.events, "progress"))
    (numbers,) = numbered(told.events).values()
    assert numbers == list(range(len(numbers))), "one sequence over both starts"
    saved = [event.checkpoint for event in named(told.events, "checkpoint")]
    assert len(set(saved)) == len(saved), "no checkpoint is told twice"
    assert len(named(told.events, "first_rows")) == 1


def test_a_killed_torchrun_is_another_attempt_which_ends_in_the_same_bits(
    tmp_path, training_set, undisturbed
):
    told = Saboteur(15, lambda: kill(torchruns()))
    result = LocalLauncher(tmp_path / "objects").train(train_job(training_set), told)
    assert (result.attempt, result.step) == (2, STEPS)
    assert result.model.digest == undisturbed[1].model.digest
    (warning,) = named(told.events, "warning")
    assert "retry 1 of 2" in warning.message
    two = World(procs=2)
    assert (warning.lost.cause, warning.lost.world, warning.lost.goes_on) == ("SIGKILL", two, two)
    assert ranks() == []


def test_a_stopped_rank_is_noticed_within_the_timeout_and_ends_in_the_same_bits(
    tmp_path, training_set, undisturbed
):
    told = Saboteur(15, lambda: kill([ranks()[1]], signal.SIGSTOP))
    job = train_job(training_set, hang_timeout_seconds=15)
    result = LocalLauncher(tmp_path / "objects").train(job, told)
    assert (result.attempt, result.model.digest) == (1, undisturbed[1].model.digest)
    (error,) = named(told.events, "error")
    assert (error.exit_code, error.rank) == (76, 0)
    assert "waited 15 s for rank 1, whose last heartbeat" in error.reason
    assert ranks() == [], "not even a stopped process is left"


def test_where_every_rank_stands_still_the_launcher_ends_the_attempt(
    tmp_path, training_set, undisturbed, monkeypatch
):
    monkeypatch.setattr(stall_detection, "_TIMES_PATIENCE", 1)
    told = Saboteur(15, lambda: kill(ranks(), signal.SIGSTOP))
    job = train_job(training_set, hang_timeout_seconds=10)
    result = LocalLauncher(tmp_path / "objects", grace=2).train(job, told)
    assert (result.attempt, result.model.digest) == (2, undisturbed[1].model.digest)
    assert "no heartbeat or event for" in named(told.events, "warning")[0].message
    assert "rank 1 at step" in named(told.events, "warning")[0].message
    assert ranks() == []


def test_where_two_attempts_were_killed_one_process_goes_on_and_the_losses_agree(
    tmp_path, training_set, undisturbed
):
    told = Saboteur(10, lambda: kill(ranks()), times=2)
    launcher = LocalLauncher(tmp_path / "objects", restarts=0)
    result = launcher.train(train_job(training_set), told)
    assert (result.attempt, result.step) == (3, STEPS)
    warnings = [event.message for event in named(told.events, "warning")]
    assert "retry 1 of 2" in warnings[0]
    assert "1 instead of 2 processes, because SIGKILL ended 2 attempts in a row" in warnings[1]
    one, two = losses(told.events), losses(undisturbed[2])
    assert one.keys() == two.keys()
    assert max(abs(one[step] - two[step]) for step in one) < 1e-5


def losses(events):
    return {event.step: event.metrics["validation_loss"] for event in named(events, "metrics")}


def test_a_notice_saves_the_last_step_and_loses_none(tmp_path, training_set, undisturbed):
    stop, told = threading.Event(), []

    def on_event(event):
        told.append(event)
        if event.kind == "metrics" and event.step >= 15:
            stop.set()

    launcher = LocalLauncher(tmp_path / "objects")
    with pytest.raises(TrainingInterrupted, match="saved at step"):
        launcher.train(train_job(training_set), on_event, stop.is_set)
    saved = named(told, "checkpoint")[-1]
    assert {event.step for event in named(told, "error")} == {saved.step}, "the last one taken"
    again = []
    result = launcher.train(train_job(training_set), again.append)
    resumed = [e.step for e in named(again, "progress") if "resumed" in e.message]
    assert resumed == [saved.step]
    assert result.model.digest == undisturbed[1].model.digest


def test_a_rank_whose_torchrun_is_killed_ends_and_writes_nothing_more(
    tmp_path, training_set, until, is_alive
):
    """Started as on a cluster: no supervisor is above it."""
    folder = SessionFolder(tmp_path / "session")
    job = train_job(training_set, epochs=1000)
    request = train_request(job, folder, 1, World(procs=2))
    command = LocalRunner().command(request, folder.begin(request))
    with (tmp_path / "log").open("wb") as log:
        agent = subprocess.Popen(command, env=environment(1), stdout=log, stderr=log)
    until(lambda: len(list(Path(folder.checkpoints).glob("*/manifest.json"))) > 1)
    workers = ranks(agent.pid)
    assert len(workers) == 2
    agent.kill()
    agent.wait()
    until(lambda: not any(is_alive(pid) for pid in workers))
    left = written(folder.root)
    time.sleep(1)  # a second in which something that lived would write steps by the dozen
    assert written(folder.root) == left


def written(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
