"""Every data step and every byte is on one bill: the shares of all jobs add up to the whole."""

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from ml_assets.assets.trained_model.cost.money import HOUR, exact
from ml_assets.extras.cost.bill import NO_JOB, Share, shares, together
from ml_assets.records.data_steps import DataStep
from ml_assets_tests.extras.cost.test_bill import BEGIN, job

PRICES = st.sampled_from([None, "0.40", "0.333333"])


def step(number: int, hours: float, took: int, node_hour: str | None = "0.40") -> DataStep:
    ended = BEGIN + timedelta(hours=hours)
    address = f"flights/feature_set [{number}]"
    return DataStep(
        commit=str(number), address=address, took=took, ended=ended, node_hour=node_hour
    )


def test_a_step_is_on_the_bill_of_the_first_training_after_it_and_on_no_other() -> None:
    jobs = [job("flights-train-1"), job("flights-train-2", begin=BEGIN + timedelta(hours=5))]
    steps = [step(1, -1, HOUR), step(2, 0, HOUR), step(3, 1, 2 * HOUR), step(4, 6, HOUR)]
    found = shares(jobs, steps, {}, 0)
    assert {name: (one.steps, exact(one.cost)) for name, one in found.items()} == {
        "flights-train-1": (2, "0.800000"),
        "flights-train-2": (1, "0.800000"),
        NO_JOB: (1, "0.400000"),
    }


def test_what_is_no_sessions_own_is_owed_by_all_trainings_alike() -> None:
    jobs = [job(f"flights-train-{n}") for n in (1, 2, 3)]
    found = shares(jobs, [], {"flights-train-1": 10**9, "other-train-1": 7}, 2 * 10**9)
    assert [one.stored for one in found.values()] == [
        Fraction(4 * 10**9, 3),
        Fraction(10**9, 3),
        Fraction(10**9, 3),
    ]
    assert exact(found["flights-train-1"].storage(Decimal("0.03"))) == "0.040000"


def test_before_the_first_training_everything_waits_for_it() -> None:
    found = shares([], [step(1, 0, HOUR)], {}, 5)
    assert found == {NO_JOB: Share(1, HOUR, Fraction(2, 5), Fraction(5))}


@given(
    begins=st.lists(st.integers(0, 50), max_size=5),
    steps=st.lists(st.tuples(st.integers(-5, 60), st.integers(0, 10**9), PRICES), max_size=12),
    own=st.lists(st.integers(0, 10**9), min_size=5, max_size=5),
    rest=st.integers(0, 10**12),
)
@settings(max_examples=60)
def test_the_sum_over_jobs_and_what_is_left_is_the_whole_exactly(
    begins: list[int], steps: list[tuple[int, int, str | None]], own: list[int], rest: int
) -> None:
    jobs = [
        job(f"flights-train-{n}", begin=BEGIN + timedelta(hours=begin))
        for n, begin in enumerate(sorted(begins))
    ]
    made = [step(n, *one) for n, one in enumerate(steps)]
    by_job = dict(zip((one.name for one in jobs), own, strict=False))
    stored = sum(by_job.values()) + rest
    whole = together(list(shares(jobs, made, by_job, stored).values()))
    assert (whole.steps, whole.time) == (len(made), sum(one.took for one in made))
    assert whole.stored == stored
    priced = [Fraction(one.took) * Fraction(one.node_hour) / HOUR for one in made if one.node_hour]
    assert whole.cost == (sum(priced, Fraction()) if priced else None)
