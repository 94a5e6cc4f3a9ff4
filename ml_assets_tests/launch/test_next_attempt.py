"""What follows an attempt: decided from how the ones before it ended, with a reason."""

import signal

import pytest

from ml_assets.launch.failure import Ending
from ml_assets.launch.next_attempt import (
    MOST_AVOIDED,
    Budgets,
    EndedAttempt,
    next_attempt,
    spread_over,
)
from ml_assets.spec.parallel import Parallel
from ml_assets.spec.training import TrainingSpec
from ml_assets.spec.training_program import World

KILL = -signal.SIGKILL
CRASH = -signal.SIGSEGV


def an_end(world, code, then, saved=False, **more):
    """An attempt that ended so: only what decides on the next one is told."""
    return EndedAttempt(world, Ending(f"exit {code}", then, "it ended", "", code, **more), saved)


def after(*ended):
    decision = next_attempt([an_end(World(procs=n), code, then) for n, code, then in ended])
    return (decision.world.processes if decision.go_on else None), decision.reason


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
        ([(2, 66, "stop")], None, "would not help"),
        ([(2, -15, "interrupted")], None, "would not help"),
    ],
)
def test_each_story_has_a_next_step_with_a_reason(ended, procs, says):
    found, reason = after(*ended)
    assert found == procs
    assert says in reason


def test_a_hybrid_that_fewer_processes_cannot_split_is_sharded():
    hybrid = TrainingSpec(strategy="hybrid", processes=8)
    parted = TrainingSpec(processes=4, parallel=Parallel(tensor=2))
    assert spread_over(parted, 2) == parted
    assert spread_over(parted, 3) == parted.model_copy(update={"parallel": Parallel()})
    assert spread_over(hybrid, 8) == hybrid
    assert spread_over(hybrid, 4) == hybrid
    assert spread_over(hybrid, 2) == hybrid.model_copy(update={"strategy": "shard"})
    alone = TrainingSpec(strategy="replicate", processes=2)
    assert spread_over(alone, 1) == alone


EIGHT = World(nodes=4, procs=2)


def stories(*ends, **more):
    """Endings of four nodes with two processes each, by what they call for."""
    return [an_end(EIGHT, KILL if then == "again" else 1, then, **more) for then in ends]


def test_lost_machines_use_up_no_error():
    budgets = Budgets(errors=1, losses=3)
    ended = stories("again", "lost", "lost", "lost")
    assert next_attempt(ended, budgets).go_on
    after_an_error = next_attempt([*ended, an_end(EIGHT, CRASH, "again")], budgets)
    assert not after_an_error.go_on
    assert "tried 2 times" in after_an_error.reason


def test_errors_use_up_no_loss():
    budgets = Budgets(losses=2)
    assert next_attempt(stories("lost", "lost", "again", "lost"), budgets).go_on
    spent = next_attempt(stories("lost", "lost", "lost"), budgets)
    assert not spent.go_on
    assert "3 times in a row with nothing saved" in spent.reason


def test_machines_may_be_lost_for_ever_where_each_attempt_saves():
    ended = stories(*["lost"] * 500, saved=True)
    decision = next_attempt(ended, Budgets(losses=0))
    assert decision.go_on
    assert decision.world == EIGHT
    assert "no error of the training" in decision.reason


def test_what_does_not_start_has_a_budget_of_its_own():
    budgets = Budgets(errors=0, losses=0, starts=2)
    assert next_attempt(stories("unstarted", "unstarted"), budgets).go_on
    spent = next_attempt(stories(*["unstarted"] * 3), budgets)
    assert not spent.go_on
    assert "its processes never started, 3 times in a row" in spent.reason


def test_two_kills_of_memory_halve_the_processes_of_each_node():
    decision = next_attempt(stories("again", "lost", "again"))
    assert decision.world == World(nodes=4, procs=1)
    assert "4 instead of 8 processes" in decision.reason


@pytest.mark.parametrize(
    ("room", "least", "nodes"),
    [(3, 2, 3), (2, 2, 2), (1, 2, None), (3, None, None), (0, 1, None), (4, 2, None)],
)
def test_where_there_is_room_for_fewer_nodes_fewer_run_if_that_is_allowed(room, least, nodes):
    decision = next_attempt(stories("no_room", room=room), min_nodes=least)
    assert (decision.world.nodes if decision.go_on else None) == nodes
    assert decision.world.procs == 2
    assert f"{room} " in decision.reason


# --- nodes that failed ----------------------------------------------------------------------------


def failing_on(node, **more):
    return an_end(EIGHT, 1, "lost", avoid=node, **more)


def test_a_node_that_failed_is_left_alone_by_every_attempt_after_it():
    first = next_attempt([failing_on("bad")])
    assert (first.go_on, first.avoid) == (True, ("bad",))
    lost = next_attempt(stories("lost"), avoided=first.avoid)
    assert lost.avoid == ("bad",), "whatever ends an attempt, and whoever made the first one"
    assert next_attempt([failing_on("worse")], avoided=("bad",)).avoid == ("bad", "worse")
    assert next_attempt([failing_on("bad")], avoided=("bad", "worse")).avoid == ("worse", "bad")


def test_so_many_nodes_are_never_left_alone_that_it_is_hardly_the_nodes():
    avoided = ()
    for number in range(3 * MOST_AVOIDED):
        avoided = next_attempt([failing_on(f"node-{number}", saved=True)], avoided=avoided).avoid
    assert len(avoided) == MOST_AVOIDED
    assert avoided[-1] == f"node-{3 * MOST_AVOIDED - 1}"


def test_where_there_is_no_room_without_them_they_will_do_again():
    decision = next_attempt(stories("no_room", room=3), avoided=("bad", "worse"))
    assert (decision.go_on, decision.world, decision.avoid) == (True, EIGHT, ())
    assert "so it may use bad, worse again" in decision.reason
    again = next_attempt(stories("no_room", "no_room", room=3), avoided=decision.avoid)
    assert not again.go_on


def test_fewer_nodes_are_better_than_one_that_failed():
    decision = next_attempt(stories("no_room", room=3), min_nodes=2, avoided=("bad",))
    assert (decision.world.nodes, decision.avoid) == (3, ("bad",))


def test_a_node_that_fails_whenever_it_will_do_again_ends_it_all_the_same():
    ended = []
    for _ in range(3):
        ended += [failing_on("only"), *stories("no_room", room=0)]
    assert next_attempt(ended, Budgets(losses=3), avoided=("only",)).go_on
    spent = next_attempt([*ended, failing_on("only")], Budgets(losses=3))
    assert not spent.go_on
    assert "4 times in a row with nothing saved" in spent.reason
