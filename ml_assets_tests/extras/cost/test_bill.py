"""Money is added up exactly, and every line adds up to its parts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from ml_assets.assets.trained_model.cost.jobs import Job, Use
from ml_assets.assets.trained_model.cost.money import (
    HOUR,
    exact,
    in_words,
    of_bytes,
    of_time,
    rounded,
)
from ml_assets.assets.trained_model.cost.split import PARTS, node_time, split_session
from ml_assets.extras.cost.bill import BY, bill, whole
from ml_assets.extras.cost.estimate import TimeEstimate
from ml_assets.settings import PRICE_CLASSES, prices_of
from ml_assets.spec.usage import AttemptUsage, Held

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
PRICES = prices_of([("spot", "1.10"), ("on-demand", "3.75"), ("node", "0.40")])


def job(
    name="flights-train-1",
    *,
    owner="team:data",
    gpus=0,
    nodes=1,
    bought="on-demand",
    hours=(1.0,),
    end="done",
    staged=0,
    begin=BEGIN,
    queued=0.0,
):
    """A job whose attempts follow each other, each that many hours long, priced."""
    usages = []
    for number, length in enumerate(hours, 1):
        given = begin + timedelta(hours=queued)
        ended = given + timedelta(hours=length)
        held = Held(
            nodes=nodes,
            gpus_per_node=gpus,
            price_class=bought,
            created=begin,
            scheduled=given,
            started=given,
            ended=ended,
            staged_bytes=staged,
        )
        last = number == len(hours)
        usages.append(
            AttemptUsage(
                pipeline=name.split("-")[0],
                session=name,
                attempt=number,
                verb="train",
                held=held,
                end=end if last else "lost",
            )
        )
        begin = ended
    splits = split_session(usages, "useful" if end == "done" else "failed")
    hour = PRICES.node_hour(bought, gpus)
    transfer = of_bytes(staged, Decimal("0.09"))
    uses = [Use(u, s, hour, transfer) for u, s in zip(usages, splits, strict=True)]
    return Job(name, name.split("-")[0], owner, "run-1", tuple(uses))


def test_8_gpus_on_spot_for_4_hours_cost_35_20():
    found = whole([job(gpus=8, bought="spot", hours=(4,))], {})
    assert in_words(found.cost) == "35.20"
    assert found.gpu_time == 32 * HOUR
    assert exact(found.costs["useful"]) == "35.200000"


def test_256_gpus_on_demand_for_336_hours_cost_322_560():
    found = whole([job(gpus=8, nodes=32, hours=(336,))], {})
    assert in_words(found.cost) == "322,560.00"
    assert found.gpu_time == 256 * 336 * HOUR


def test_a_machine_without_gpus_has_its_own_price_and_what_is_queued_costs_nothing():
    found = whole([job(nodes=2, hours=(3,), queued=5)], {})
    assert in_words(found.cost) == "2.40"
    assert found.split["queued"] == 10 * HOUR
    assert found.node_time == 16 * HOUR
    assert "queued" not in found.costs


def test_what_has_no_price_is_told_apart_and_what_is_known_is_still_added_up():
    found = whole([job(gpus=1, bought="reserved"), job("flights-train-2", gpus=1)], {})
    assert in_words(found.cost) == "3.75"
    assert found.unpriced == HOUR
    assert found.bought["reserved"].cost is None
    assert whole([job(gpus=1, bought="reserved")], {}).cost is None
    assert in_words(None) == "–"


def test_a_tenth_of_a_cent_a_million_times_is_a_thousand():
    tenth = of_time(HOUR, Decimal("0.001"))
    assert tenth is not None
    assert sum([tenth] * 10**6, Fraction()) == 1000
    assert sum([0.001] * 10**6) != 1000, "floats drift"


def test_transfer_is_paid_by_the_gigabyte_beside_the_machines():
    found = whole([job(staged=10**9, hours=(1,))], {})
    assert (exact(found.transfer), exact(found.cost)) == ("0.090000", "0.490000")


def test_small_amounts_keep_four_decimals_and_ties_go_to_the_even_cent():
    assert in_words(Fraction(3, 10**4)) == "0.0003"
    assert in_words(Fraction(0)) == "0.00"
    assert [str(rounded(Fraction(n, 1000), 2)) for n in (1005, 1015, 1025)] == [
        "1.00",
        "1.02",
        "1.02",
    ]


JOBS = [
    job("flights-train-1", hours=(1, 2)),
    job(
        "flights-train-2", owner="team:ops", hours=(5,), end="failed", begin=BEGIN.replace(month=2)
    ),
    job("clicks-train-1", gpus=1, hours=(1,)),
]


def test_the_dearest_line_comes_first_and_months_come_in_their_order():
    assert [one.name for one in bill(JOBS, "pipeline", {})] == ["clicks", "flights"]
    assert [one.name for one in bill(JOBS, "owner", {})] == ["team:data", "team:ops"]
    assert [one.name for one in bill(JOBS, "month", {})] == ["2026-01", "2026-02"]
    dearest = bill(JOBS, "job", {})[0]
    assert (dearest.name, dearest.jobs, dearest.attempts) == ("clicks-train-1", 1, 1)


def test_an_attempt_counts_in_the_month_in_which_it_was_asked_for():
    late = job(hours=(2, 3), begin=datetime(2026, 1, 31, 23, tzinfo=UTC))
    january, february = bill([late], "month", {late.name: TimeEstimate(4 * HOUR, "")})
    assert (january.node_time, february.node_time) == (2 * HOUR, 3 * HOUR)
    assert january.expected is not None and february.expected is None
    assert (january.expected.actual, january.expected.off_by) == (5 * HOUR, 0.25)
    assert exact(january.expected.cost) == "1.600000"


DRAWN = st.lists(
    st.builds(
        job,
        st.sampled_from(["a-train-1", "a-train-2", "b-train-1"]),
        owner=st.sampled_from(["team:a", "team:b"]),
        gpus=st.integers(0, 8),
        nodes=st.integers(1, 256),
        bought=st.sampled_from(PRICE_CLASSES),
        hours=st.lists(st.floats(0, 100), min_size=1, max_size=3),
        end=st.sampled_from(["done", "failed"]),
        staged=st.integers(0, 10**12),
        queued=st.floats(0, 5),
    ),
    max_size=5,
)


@given(DRAWN)
def test_whatever_it_is_grouped_by_nothing_is_lost_and_nothing_counts_twice(drawn):
    jobs = [replace(one, name=f"{one.name}{n}") for n, one in enumerate(drawn)]
    total = whole(jobs, {})
    assert total.node_time == sum(node_time(use.usage) for one in jobs for use in one.uses)
    for by in BY:
        lines = bill(jobs, by, {})
        assert sum(one.node_time for one in lines) == total.node_time
        assert sum(one.cost or 0 for one in lines) == (total.cost or 0)
    for one in [total, *bill(jobs, "owner", {})]:
        held = sum(one.split[part] for part in PARTS if part != "queued")
        assert sum(b.node_time for b in one.bought.values()) == held
        assert sum(cost or 0 for cost in one.costs.values()) == (one.machines or 0)
