"""Every moment of every machine is counted once, as what it was used for."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from ml_assets.assets.trained_model.cost.split import PARTS, node_time, split_session
from ml_assets.spec.usage import AttemptUsage, Held, Mark

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
SECOND = 1_000_000


def at(seconds):
    return None if seconds is None else BEGIN + timedelta(seconds=seconds)


def attempt(number, ended, *, begin=0, scheduled=0, started=0, marks=(), end="done", nodes=1):
    """Moments are seconds from the beginning; marks are (seconds, step[, share waited])."""
    told = [(m[0] - begin, *m[1:]) for m in marks]
    return AttemptUsage(
        pipeline="irises",
        session="irises-train-0",
        attempt=number,
        verb="train",
        held=Held(
            nodes=nodes,
            price_class="spot",
            created=at(begin),
            scheduled=at(scheduled),
            started=at(started),
            ended=at(ended),
        ),
        end=end,
        marks=tuple(
            Mark(after=int(1000 * m[0]), step=m[1], waited=m[2] if len(m) > 2 else 0.0)
            for m in told
        ),
    )


def seconds(splits):
    """What is not nothing, in seconds, of all attempts."""
    whole = {part: sum(split[part] for split in splits) / SECOND for part in PARTS}
    return {part: value for part, value in whole.items() if value}


def test_a_training_that_nothing_happened_to_is_useful_from_its_start_to_its_export():
    whole = attempt(1, 100, marks=[(8, 0), (90, 50)])
    assert seconds(split_session([whole], "useful")) == {"useful": 100}


def test_before_a_machine_is_held_it_is_queued_and_until_the_program_begins_it_stalls():
    waited = attempt(1, 100, scheduled=30, started=40, marks=[(45, 0), (95, 50)], nodes=4)
    found = seconds(split_session([waited], "useful"))
    assert found == {"queued": 120, "stalled": 40, "useful": 240}


def test_what_never_got_a_machine_was_queued_all_the_time():
    never = attempt(1, 100, scheduled=None, started=None, end="unstarted", nodes=2)
    assert seconds(split_session([never], "failed")) == {"queued": 200}


def test_steps_after_the_checkpoint_that_the_next_attempt_went_on_from_are_recomputed():
    # ten steps take 10 s: those from 30 to 50 are lost, and so is what was not told before the end
    first = attempt(1, 65, marks=[(10, 0), (60, 50)], end="lost")
    second = attempt(2, 150, begin=70, scheduled=70, started=70, marks=[(78, 30), (148, 100)])
    found = split_session([first, second], "useful")
    assert seconds(found[:1]) == {"useful": 10 + 30, "recomputed": 20 + 5}
    assert seconds(found[1:]) == {"recomputed": 8, "useful": 72}


def test_a_third_attempt_that_falls_back_further_loses_the_work_of_both():
    first = attempt(1, 50, marks=[(0, 0), (50, 50)], end="lost")
    second = attempt(2, 100, begin=50, scheduled=50, started=50, marks=[(50, 40), (100, 90)])
    third = attempt(3, 200, begin=100, scheduled=100, started=100, marks=[(100, 20), (200, 120)])
    second = second.model_copy(update={"end": "lost"})
    found = split_session([first, second, third], "useful")
    assert [seconds([one]) for one in found] == [
        {"useful": 20, "recomputed": 30},
        {"recomputed": 50},
        {"useful": 100},
    ]


def test_processes_that_begin_again_within_an_attempt_lose_what_came_after_their_checkpoint():
    again = attempt(1, 100, marks=[(0, 0), (40, 40), (60, 20), (100, 60)])
    found = seconds(split_session([again], "useful"))
    assert found == {"useful": 20 + 40, "recomputed": 20 + 20}


def test_a_stand_still_is_stalled_from_the_last_word_and_the_rest_of_a_loss_is_recomputed():
    still = attempt(1, 400, marks=[(0, 0), (100, 100)], end="stalled")
    after = attempt(2, 500, begin=400, scheduled=400, started=400, marks=[(400, 100), (490, 190)])
    found = seconds(split_session([still, after], "useful"))
    assert found == {"useful": 200, "stalled": 300}


def test_the_share_of_steps_that_waited_for_data_is_stalled():
    slow = attempt(1, 100, marks=[(0, 0), (100, 100, 0.25)])
    assert seconds(split_session([slow], "useful")) == {"useful": 75, "stalled": 25}


def test_a_session_without_a_result_failed_and_a_refused_model_was_refused():
    first = attempt(1, 65, marks=[(10, 0), (60, 50)], end="lost")
    second = attempt(2, 150, begin=70, scheduled=70, started=70, marks=[(78, 30), (148, 100)])
    lost = {"recomputed": 20 + 5 + 8}
    assert seconds(split_session([first, second], "failed")) == {**lost, "failed": 40 + 72}
    assert seconds(split_session([first, second], "refused")) == {**lost, "refused": 40 + 72}


def test_clocks_that_disagree_make_no_time_and_lose_none():
    odd = attempt(1, 100, scheduled=50, started=20, marks=[(5, 0), (70, 30), (60, 50), (300, 60)])
    (found,) = split_session([odd], "useful")
    assert sum(found.values()) == node_time(odd) == 100 * SECOND
    assert min(found.values()) == 0


MOMENTS = st.integers(0, 10**6)
MARKS = st.lists(st.tuples(MOMENTS, st.integers(0, 300), st.floats(0, 1)), max_size=8)
ATTEMPTS = st.lists(
    st.tuples(
        MOMENTS,
        st.none() | MOMENTS,
        st.none() | MOMENTS,
        MARKS,
        st.sampled_from(["done", "stopped", "lost", "stalled", "failed", "unstarted"]),
        st.integers(1, 256),
    ),
    min_size=1,
    max_size=6,
)


@given(ATTEMPTS, st.sampled_from(["useful", "failed", "refused"]))
def test_the_parts_add_up_to_the_node_time_exactly_whatever_happened(drawn, standing):
    attempts = [
        attempt(n, end / 1e3, scheduled=_s(s), started=_s(b), marks=_told(m), end=e, nodes=k)
        for n, (end, s, b, m, e, k) in enumerate(drawn, 1)
    ]
    splits = split_session(attempts, standing)
    for one, split in zip(attempts, splits, strict=True):
        assert sum(split.values()) == node_time(one)
        assert all(value >= 0 for value in split.values())


def _s(milliseconds):
    return None if milliseconds is None else milliseconds / 1e3


def _told(marks):
    return [(m / 1e3, step, waited) for m, step, waited in marks]
