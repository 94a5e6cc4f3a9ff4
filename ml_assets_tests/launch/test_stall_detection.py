"""A stall is silence by far longer than the ranks' own patience, and nothing else."""

from datetime import UTC, datetime, timedelta

import pytest

from ml_assets.launch.stall_detection import StallDetector
from ml_assets.spec.training_program.events import Heartbeat, heartbeat_file

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def attempt(tmp_path):
    return Attempt(tmp_path)


class Attempt:
    """Two ranks and a clock that a test moves."""

    def __init__(self, folder):
        self.folder, self.now, self.told = folder, 0.0, 0
        self.stall = StallDetector(folder, 2, lambda: self.now)

    def beat(self, rank, step, patience=30.0):
        found = Heartbeat(
            attempt=1,
            generation=0,
            rank=rank,
            pid=1,
            host="here",
            step=step,
            time=BEGAN + timedelta(seconds=self.now),
            patience=patience,
        )
        heartbeat_file(self.folder, rank).write_text(found.model_dump_json())

    def after(self, seconds):
        self.now += seconds
        return self.stall.noticed(self.told)


def test_before_the_first_heartbeat_nothing_stands_still(attempt):
    assert attempt.after(100_000) is None


def test_ten_times_the_patience_without_a_sign_is_a_stall_that_names_the_steps(attempt):
    attempt.beat(0, 7)
    attempt.beat(1, 8)
    assert attempt.after(1) is None
    assert attempt.after(298) is None
    found = attempt.after(2)
    assert found is not None
    assert "no heartbeat or event for 300 s" in found
    assert "rank 0 at step 7, rank 1 at step 8" in found


def test_one_rank_that_goes_on_is_a_sign_of_life(attempt):
    attempt.beat(0, 7)
    attempt.beat(1, 8)
    attempt.after(1)
    attempt.after(290)
    attempt.beat(1, 9)
    assert attempt.after(20) is None


def test_an_event_is_a_sign_of_life(attempt):
    attempt.beat(0, 7)
    attempt.after(1)
    attempt.after(290)
    attempt.told += 1
    assert attempt.after(20) is None


def test_slow_steps_are_given_more_time(attempt):
    attempt.beat(0, 7, patience=30)
    attempt.beat(1, 7, patience=3000)
    attempt.after(1)
    assert attempt.after(20_000) is None
    assert attempt.after(20_000) is not None


def test_a_heartbeat_that_is_half_written_is_passed_by(attempt):
    heartbeat_file(attempt.folder, 0).write_text('{"attempt": 1, "ra')
    assert attempt.after(100_000) is None


def test_who_cannot_hear_takes_nothing_for_a_stall_nor_what_comes_late(attempt):
    attempt.beat(0, 7)
    assert attempt.after(1) is None
    for _ in range(60):
        attempt.stall.blind()
        assert attempt.after(10) is None
    assert attempt.after(290) is None
    attempt.beat(0, 8)
    assert attempt.after(290) is None


def test_a_silence_that_lasts_after_it_can_be_heard_again_is_a_stall(attempt):
    attempt.beat(0, 7)
    attempt.after(1)
    attempt.stall.blind()
    assert attempt.after(359) is None
    assert attempt.after(2) is not None
