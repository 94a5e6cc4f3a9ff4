"""What follows an attempt: decided from how the ones before it ended, with a reason."""

import signal

import pytest

from ml_assets.launch.recovery import Ended, next_attempt, spread_over
from ml_assets.spec.training import TrainingSpec

KILL = -signal.SIGKILL
CRASH = -signal.SIGSEGV


def after(*ended):
    decision = next_attempt([Ended(procs, code, then) for procs, code, then in ended])
    return (decision.procs if decision.go_on else None), decision.reason


@pytest.mark.parametrize(
    ("ended", "procs", "says"),
    [
        ([(2, KILL, "again")], 2, "retry 1 of 2"),
        ([(2, KILL, "again")] * 2, 1, "1 instead of 2 processes"),
        ([(8, KILL, "again")] * 2, 4, "4 instead of 8 processes"),
        ([(3, KILL, "again")] * 2, 1, "1 instead of 3"),
        # a crash in between: it is not the memory
        ([(2, KILL, "again"), (2, CRASH, "again")], 2, "retry 2 of 2"),
        ([(2, CRASH, "again")] * 3, None, "tried 3 times"),
        # fewer processes have a budget of their own; one is the end of the ladder
        ([(2, KILL, "again")] * 2 + [(1, KILL, "again")], 1, "retry 1 of 2"),
        ([(4, KILL, "again")] * 2 + [(2, KILL, "again")] * 2, 1, "1 instead of 2"),
        ([(2, KILL, "again")] * 2 + [(1, KILL, "again")] * 3, None, "tried 3 times"),
        ([(2, 66, "stop")], None, "would not mend"),
        ([(2, -15, "interrupted")], None, "would not mend"),
    ],
)
def test_each_story_has_a_next_step_with_a_reason(ended, procs, says):
    found, reason = after(*ended)
    assert found == procs
    assert says in reason


def test_a_hybrid_that_fewer_processes_cannot_split_is_sharded():
    hybrid = TrainingSpec(strategy="hybrid", processes=8)
    assert spread_over(hybrid, 8) == hybrid
    assert spread_over(hybrid, 4) == hybrid
    assert spread_over(hybrid, 2) == hybrid.model_copy(update={"strategy": "shard"})
    alone = TrainingSpec(strategy="replicate", processes=2)
    assert spread_over(alone, 1) == alone
