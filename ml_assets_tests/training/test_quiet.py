"""What a training does outside its steps is no stall, and a rank that hangs in it is found."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest
import torch

from ml_assets.launch.local.supervisor import descendants
from ml_assets.launch.stall_detection import StallDetector
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program.events import Failed, Heartbeat, heartbeat_file
from ml_assets.training.distributed.ranks import SAVE_SECONDS, join, leave
from ml_assets_tests.training.conftest import SPEC, Attempt, Sessions
from ml_assets_tests.training.pausing import PHASES

T = TypeVar("T")
ONCE = SPEC.model_copy(update={"epochs": 1, "evaluate_every": 1000, "hang_timeout_seconds": 0.5})
"""One save, after the last step."""
SLOW_SECONDS = 3600.0


def paused(attempt: Attempt) -> subprocess.Popen[bytes]:
    """Start it; it waits in each of its phases until ``go_on``."""
    command = attempt.command()
    place = command.index("ml_assets.training")
    command[place : place + 1] = ["ml_assets_tests.training.pausing", str(attempt.folder)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def go_on(attempt: Attempt, phase: str) -> None:
    (attempt.folder / phase).unlink()


def eventually(look: Callable[[], T]) -> T:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come")


def beat(attempt: Attempt) -> Heartbeat:
    return Heartbeat.model_validate_json(heartbeat_file(attempt.folder, 0).read_bytes())


def stands_still(attempt: Attempt) -> bool:
    """Whether the launcher would end it after an hour in which nothing new came."""
    now = 0.0
    stall = StallDetector(attempt.folder, 1, lambda: now)
    stall.noticed(0)
    now = SLOW_SECONDS
    return stall.noticed(0) is not None


def test_an_hour_outside_the_steps_is_no_standstill_and_a_save_shows_signs_of_life(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setenv("WORLD_SIZE", "1")
    attempt = sessions.attempt("slow", procs=1, spec=ONCE)
    left_by_a_start_before(attempt)
    assert stands_still(attempt)
    process = paused(attempt)
    try:
        for phase in PHASES:
            eventually((attempt.folder / phase).exists)
            if phase == "save":
                last = beat(attempt).time
                eventually(lambda last=last: beat(attempt).time > last + timedelta(seconds=2))
            else:
                assert not stands_still(attempt), phase
            go_on(attempt, phase)
        assert process.wait(60) == 0
    finally:
        process.kill()
    assert not stands_still(attempt), "a pod may take long to hand the model over"


def left_by_a_start_before(attempt: Attempt) -> None:
    found = Heartbeat.model_validate(
        {
            "attempt": 1,
            "generation": 0,
            "rank": 0,
            "pid": 1,
            "host": "here",
            "step": 7,
            "time": "2026-01-01T00:00:00Z",
            "patience": 30.0,
        }
    )
    heartbeat_file(attempt.folder, 0).write_bytes(canonical_json(found))


def test_a_save_may_take_longer_than_the_ranks_may_take_to_find_each_other() -> None:
    ranks = join()
    try:
        backend = ranks.side._get_backend(torch.device("cpu"))
        assert backend.options._timeout == timedelta(seconds=SAVE_SECONDS)
    finally:
        leave()


@pytest.mark.daemon
def test_a_rank_that_hangs_while_all_wait_for_a_save_is_found_within_the_patience_of_steps(
    sessions: Sessions,
) -> None:
    attempt = sessions.attempt("hangs", spec=ONCE)
    process = paused(attempt)
    try:
        for phase in ("set", "resume"):
            eventually((attempt.folder / phase).exists)
            go_on(attempt, phase)
        eventually((attempt.folder / "save").exists)
        os.kill(of_rank(process.pid, 1), signal.SIGSTOP)
        (failed, *_) = eventually(lambda: [e for e in attempt.events() if isinstance(e, Failed)])
    finally:
        for pid in descendants(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()
    assert (failed.exit_code, failed.rank) == (76, 0)


def of_rank(root: int, rank: int) -> int:
    for pid in descendants(root):
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if f"RANK={rank}".encode() in environ:
            return pid
    raise AssertionError(f"no rank {rank} below {root}")
