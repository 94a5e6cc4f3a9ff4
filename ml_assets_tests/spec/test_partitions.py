"""The partitions we plan with are those that Dagster shows: same keys, same spans."""

from datetime import UTC, date, datetime, timedelta

import dagster as dg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ml_assets.spec.partitions import PartitionsSpec, PartitionWindow, why_in_no_partition, windows

# Northern, southern and no daylight saving; midnight that does not exist (Sao Paulo, Beirut) or
# comes twice (Havana); offsets that are not whole hours (Kathmandu).
ZONES = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "America/Sao_Paulo",
    "America/Havana",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Australia/Sydney",
]
CADENCES = ["hourly", "daily", "weekly", "monthly"]
END = dict.fromkeys(CADENCES, "2018-11-20") | {"hourly": "2018-04-10"}
"""From September 2017 on, with both changes of the clock in each zone that has them."""
LATER = datetime(2030, 1, 1, tzinfo=UTC)


def of_dagster(spec: PartitionsSpec, now: datetime) -> list[PartitionWindow]:
    assert spec.start is not None
    form = "%Y-%m-%d-%H:%M" if spec.cadence == "hourly" else "%Y-%m-%d"
    start = spec.start.strftime(form)
    end = spec.end.strftime(form) if spec.end else None
    zone = spec.timezone
    definition: dg.TimeWindowPartitionsDefinition
    if spec.cadence == "hourly":
        definition = dg.HourlyPartitionsDefinition(start, end, timezone=zone)
    elif spec.cadence == "daily":
        definition = dg.DailyPartitionsDefinition(start, end_date=end, timezone=zone)
    elif spec.cadence == "monthly":
        definition = dg.MonthlyPartitionsDefinition(start, end_date=end, timezone=zone)
    else:
        definition = dg.WeeklyPartitionsDefinition(
            start, end_date=end, timezone=zone, day_offset=spec.day_offset
        )
    spans = [
        (key, definition.time_window_for_partition_key(key))
        for key in definition.get_partition_keys(now)
    ]
    return [PartitionWindow(k, s.start.astimezone(UTC), s.end.astimezone(UTC)) for k, s in spans]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("cadence", CADENCES)
def test_a_year_of_partitions_is_dagsters_without_gap_and_no_key_comes_twice(
    cadence: str, zone: str
) -> None:
    spec = PartitionsSpec.model_validate(
        {
            "cadence": cadence,
            "start": "2017-09-20",
            "end": END[cadence],
            "timezone": zone,
            "day_offset": 1,
        }
    )
    found = windows(spec, LATER)
    assert list(found) == of_dagster(spec, LATER)
    assert [w.end for w in found[:-1]] == [w.start for w in found[1:]]
    assert len({w.key for w in found}) == len(found)


@settings(max_examples=60)
@given(
    cadence=st.sampled_from(["daily", "weekly", "monthly"]),
    zone=st.sampled_from(ZONES),
    start=st.dates(date(2015, 1, 1), date(2023, 12, 31)),
    days=st.integers(70, 400),
    offset=st.integers(0, 6),
    bounded=st.booleans(),
)
def test_any_start_and_end_gives_dagsters_partitions(
    cadence: str, zone: str, start: date, days: int, offset: int, bounded: bool
) -> None:
    end = start + timedelta(days=days)
    spec = PartitionsSpec.model_validate(
        {
            "cadence": cadence,
            "start": start,
            "end": end if bounded else None,
            "timezone": zone,
            "day_offset": offset,
        }
    )
    now = datetime.combine(end, datetime.min.time(), UTC) + timedelta(hours=7)
    now = LATER if bounded else now
    assert list(windows(spec, now)) == of_dagster(spec, now)


def test_a_partition_of_the_future_does_not_exist_yet() -> None:
    spec = PartitionsSpec(cadence="daily", start=date(2024, 1, 1), end=date(2030, 1, 1))
    now = datetime(2024, 1, 3, 12, tzinfo=UTC)
    assert [window.key for window in windows(spec, now)] == ["2024-01-01", "2024-01-02"]
    assert list(windows(spec, now)) == of_dagster(spec, now)


def test_without_a_cadence_there_are_no_partitions() -> None:
    assert windows(PartitionsSpec(), LATER) == ()


def test_a_week_of_new_york_has_an_hour_less_in_spring_and_one_more_in_autumn() -> None:
    spec = PartitionsSpec(
        cadence="weekly",
        start=date(2012, 12, 31),
        end=date(2014, 1, 6),
        timezone="America/New_York",
        day_offset=1,
    )
    found = {window.key: window.end - window.start for window in windows(spec, LATER)}
    assert len(found) == 53
    assert found["2013-03-04"] == timedelta(days=7, hours=-1)
    assert found["2013-10-28"] == timedelta(days=7, hours=1)


@pytest.mark.parametrize("cadence", CADENCES)
@pytest.mark.parametrize("zone", ZONES)
def test_no_partition_of_a_calendar_has_a_strange_name(cadence: str, zone: str) -> None:
    spec = PartitionsSpec.model_validate(
        {"cadence": cadence, "start": "2017-09-20", "timezone": zone, "day_offset": 3}
    )
    now = datetime.fromisoformat(f"{END[cadence]}T00:00Z")
    keys = [window.key for window in windows(spec, now)]
    (said,) = why_in_no_partition(spec, keys)
    assert said == (
        f"[{keys[0]} and {len(keys) - 1:,} more] is not read yet: it is not over"
        f" (partitions.timezone is {zone})"
    )


def test_files_of_no_partition_are_told_by_the_reason() -> None:
    spec = PartitionsSpec(
        cadence="weekly", start=date(2024, 1, 1), end=date(2024, 3, 4), day_offset=1
    )
    keys = ["2023-12-25", "2024-01-02", "2024-02-30", "2024-02-26", "2024-03-04", "x\x1b"]
    assert why_in_no_partition(spec, keys) == (
        "[2024-01-02 and 2 more] is not read: no weekly partition has this name; the first one is"
        " 2024-01-01",
        "[2023-12-25] is not read: partitions.start is 2024-01-01",
        "[2024-03-04] is not read: partitions.end is 2024-03-04",
        "[2024-02-26] is not read yet: it is not over (partitions.timezone is UTC)",
    )
    assert why_in_no_partition(spec, []) == ()


def test_an_hour_that_no_clock_shows_is_no_name_of_a_partition() -> None:
    spec = PartitionsSpec(cadence="hourly", start=date(2024, 1, 1))
    (said,) = why_in_no_partition(spec, ["2024-01-02-25:00", "2024-01-02-03:30"])
    assert "no hourly partition has this name; the first one is 2024-01-01-00:00" in said
