"""A year of months as pictures: the same numbers as the bill, months without a job among them."""

from datetime import UTC, datetime

import pytest

from ml_assets.assets.trained_model.cost.money import HOUR
from ml_assets.extras.cost.bill import bill
from ml_assets.extras.cost.months import LAST, months
from ml_assets_tests.extras.cost.test_bill import job


def at(year: int, month: int) -> datetime:
    return datetime(year, month, 3, tzinfo=UTC)


def test_the_last_twelve_months_are_there_in_their_order_with_the_hours_of_the_bill() -> None:
    jobs = [
        job("flights-train-1", gpus=8, bought="spot", hours=(4,), begin=at(2024, 12)),
        job("flights-train-2", hours=(2, 3), queued=1, begin=at(2025, 6)),
        job("flights-train-3", hours=(1,), end="failed", begin=at(2026, 1)),
    ]
    lines = {line.name: line for line in bill(jobs, "month", {})}
    found = months(tuple(lines.values()))
    assert [one.name for one in found] == [f"2025-{m:02d}" for m in range(2, 13)] + ["2026-01"]
    assert len(found) == LAST
    told = {one.name: one for one in found if one.hours}
    assert told.keys() == {"2025-06", "2026-01"}, "what is older than a year is not shown"
    for name, one in told.items():
        assert sum(one.hours.values()) == lines[name].node_time / HOUR
        assert sum(one.cost.values()) == pytest.approx(float(lines[name].machines or 0))
    assert told["2026-01"].hours.keys() == {"failed"}
    assert "queued" in told["2025-06"].hours and "queued" not in told["2025-06"].cost


def test_a_month_of_which_something_has_no_price_has_no_cost() -> None:
    jobs = [job("flights-train-1", gpus=1), job("flights-train-2", gpus=1, bought="reserved")]
    assert months(bill(jobs, "month", {}))[-1].cost == {}


def test_before_the_first_job_there_is_no_month() -> None:
    assert months(()) == []
