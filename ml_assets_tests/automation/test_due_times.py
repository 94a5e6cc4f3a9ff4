"""When a schedule is due: the times at which Dagster's daemon ticks, clock changes included."""

from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest
from dagster._utils.schedules import cron_string_iterator

from ml_assets.automation.schedules import due_times

SPRING, AUTUMN = datetime(2024, 3, 1, tzinfo=UTC), datetime(2024, 10, 20, 5, 30, 17, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Europe/Berlin"])
@pytest.mark.parametrize(
    "cron", ["0 * * * *", "30 1 * * *", "30 2 * * *", "0 6 * * 1", "0 0 1 * *"]
)
@pytest.mark.parametrize("since", [SPRING, AUTUMN])
def test_it_is_due_when_the_daemon_ticks(cron: str, zone: str, since: datetime) -> None:
    until = since + timedelta(days=45)
    ticks = cron_string_iterator(since.timestamp(), cron, zone)  # what the daemon asks
    expected = [tick.timestamp() for tick in takewhile(lambda tick: tick <= until, ticks)]

    assert [time.timestamp() for time in due_times(cron, zone, since, until)] == expected
    assert expected


def test_both_ends_count_and_nothing_is_due_between_two_times() -> None:
    six = datetime(2024, 1, 15, 6, tzinfo=UTC)
    second = timedelta(seconds=1)
    assert due_times("0 6 * * *", "UTC", six, six) == [six]
    assert due_times("0 6 * * *", "UTC", six + second, six + timedelta(days=1) - second) == []


def test_a_year_has_as_many_times_as_its_calendar() -> None:
    begin = datetime(2026, 1, 5, tzinfo=UTC)

    def count(cron: str, zone: str = "UTC") -> int:
        return len(due_times(cron, zone, begin, begin + timedelta(days=365)))

    assert count("0 6 * * *") == 365
    assert count("0 6 * * 1") == 53, "it begins and ends with a Monday"
    assert count("30 2 * * *", "Europe/Berlin") == 365, "summer time moves none away"
    assert count("0 0 1 * *") == 12
    assert count("0 0 29 2 *") == 0, "2026 has no such day"
    assert count("30 * * * *") == 365 * 24
