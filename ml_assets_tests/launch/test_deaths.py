"""No orphan: whatever ends the launching process or its patience ends all that it started."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from ml_assets.errors import TrainingInterrupted


class Cancelled(BaseException):
    """As Dagster's interrupt: no Exception."""


def hanging(stage, **fault):
    """A plan whose first attempt starts a process in a session of its own and hangs at step 2."""
    pids = stage.folder / "pids.json"
    stage.plan(attempts={"1": {"at": 2, "grandchild": str(pids), "hang": True, **fault}})
    return pids


def read_pids(pids):
    try:
        return json.loads(pids.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def test_a_kill_9_of_the_launching_process_leaves_none_alive_and_the_next_run_resumes(
    stage, until, is_alive
):
    pids = hanging(stage, deaf=True)  # not even a program that does not listen
    launching = stage.launch_elsewhere()
    members = until(lambda: read_pids(pids))
    assert all(is_alive(pid) for pid in members)
    launching.kill()
    launching.wait()
    until(lambda: not any(is_alive(pid) for pid in members))
    result = stage.train()  # the lock is free: its holder is dead
    assert result.attempt == 2
    assert stage.events[-1].kind == "result"


def test_a_kill_9_of_the_supervisor_leaves_no_program_and_is_tried_again(stage, until, is_alive):
    pids = stage.folder / "pids.json"
    stage.plan(attempts={"1": {"at": 2, "hang": True, "grandchild": str(pids)}})
    told = threading.Thread(target=lambda: os.kill(parent_of(until(lambda: read_pids(pids))[0]), 9))
    told.start()
    assert stage.train().attempt == 2
    told.join()
    program, grandchild = read_pids(pids)
    assert not is_alive(program)
    os.kill(grandchild, 9)  # only the supervisor could find it; the real ranks watch their parents


def test_a_cancel_lets_the_program_save_and_leaves_none_alive(stage, until, is_alive):
    pids = hanging(stage)
    with pytest.raises(Cancelled):
        stage.train(raising_after(stage, pids, until, Cancelled))
    assert not any(is_alive(pid) for pid in read_pids(pids))
    told = (stage.session / "attempts/1/events.jsonl").read_text().splitlines()[-1]
    assert json.loads(told)["exit_code"] == 75
    assert stage.train().attempt == 2


def raising_after(stage, pids, until, error):
    """A follower that raises at the first event after which the program hangs."""

    def on_event(event):
        stage.events.append(event)
        if event.kind == "checkpoint" and event.step == 2:
            until(lambda: read_pids(pids))
            raise error

    return on_event


def test_a_cancel_ends_a_program_that_does_not_listen_after_the_grace(stage, until, is_alive):
    pids = hanging(stage, deaf=True)
    with pytest.raises(KeyboardInterrupt):
        stage.train(raising_after(stage, pids, until, KeyboardInterrupt), grace=0.3)
    assert not any(is_alive(pid) for pid in read_pids(pids))


@pytest.mark.usefixtures("interruptible")
def test_a_second_interrupt_does_not_wait_for_the_grace(stage, until, is_alive):
    pids = hanging(stage, deaf=True)

    def second():
        until(lambda: at_work(subprocess.Popen.wait))
        os.kill(os.getpid(), signal.SIGINT)

    impatient = threading.Thread(target=second)
    impatient.start()
    with pytest.raises(KeyboardInterrupt):
        stage.train(raising_after(stage, pids, until, Cancelled), grace=3600)
    impatient.join()
    assert not any(is_alive(pid) for pid in read_pids(pids))


def test_asked_to_stop_it_saves_and_says_interrupted(stage, is_alive):
    pids = hanging(stage)
    with pytest.raises(TrainingInterrupted, match="saved at step 2"):
        stage.train(should_stop=lambda: read_pids(pids) is not None)
    assert not any(is_alive(pid) for pid in read_pids(pids))
    assert stage.attempts == ["1"]


def test_asked_to_stop_a_program_that_does_not_listen_is_not_tried_again(stage):
    pids = hanging(stage, deaf=True)
    with pytest.raises(TrainingInterrupted):
        stage.train(should_stop=lambda: read_pids(pids) is not None, grace=0.2)
    assert stage.attempts == ["1"]


def test_a_process_that_a_finished_program_left_behind_is_ended(stage, is_alive):
    pids = stage.folder / "pids.json"
    stage.plan(attempts={"1": {"at": "end", "grandchild": str(pids)}})
    stage.train()
    assert not any(is_alive(pid) for pid in read_pids(pids))


def test_a_second_launcher_follows_the_first_and_returns_its_result(stage, until):
    stage.plan(steps=5, pause=0.3)
    first = stage.launch_elsewhere()
    until(lambda: list(stage.objects.glob("sessions/*/attempts/1/events.jsonl")))
    result = stage.train()
    out, err = first.communicate()
    assert first.returncode == 0, err
    assert (result.attempt, stage.attempts) == (1, ["1"])
    told = [f"{e.attempt} {e.seq} {e.kind}" for e in stage.events]
    assert told == out.splitlines()  # all of them, once, in order


def test_a_follower_takes_over_when_the_first_dies(stage, until):
    stage.plan(steps=3, attempts={"1": {"at": 2, "hang": True}})
    first = stage.launch_elsewhere()

    def on_event(event):
        stage.events.append(event)
        if event.kind == "checkpoint" and (event.step, event.attempt) == (2, 1):
            first.kill()

    until(lambda: list(stage.objects.glob("sessions/*/attempts/1/events.jsonl")))
    assert stage.train(on_event).attempt == 2
    first.communicate()
    assert len({(e.attempt, e.seq) for e in stage.events}) == len(stage.events)


def test_a_follower_that_is_cancelled_leaves_the_first_alone(stage, until):
    goes_on = stage.folder / "goes-on"
    stage.plan(steps=4, attempts={"1": {"at": 2, "until": str(goes_on)}})
    first = stage.launch_elsewhere()
    until(lambda: list(stage.objects.glob("sessions/*/attempts/1/events.jsonl")))
    with pytest.raises(TrainingInterrupted, match="continues"):
        stage.train(should_stop=lambda: True)
    goes_on.touch()
    _, err = first.communicate()
    assert first.returncode == 0, err


def at_work(function):
    """Whether the main thread is in a function now."""
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame is not None


def parent_of(pid):
    asked = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=True)
    return int(asked.stdout)
