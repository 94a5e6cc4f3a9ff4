"""What may be declared under ``automation``: times and durations, refused with the remedy."""

from datetime import timedelta
from typing import Any

import pytest
from dagster._utils.schedules import is_valid_cron_string
from pydantic import ValidationError

from ml_assets.spec.automation import AutomationSpec, RefreshSpec, cron_expression


@pytest.mark.parametrize(
    ("declared", "cron"),
    [
        ({"every": "hour"}, "0 * * * *"),
        ({"every": "hour", "at": ":15"}, "15 * * * *"),
        ({"every": "day", "at": "06:30"}, "30 6 * * *"),
        ({"every": "week"}, "0 6 * * 1"),
        ({"every": "week", "at": "Sunday 23:59"}, "59 23 * * 0"),
        ({"every": "month", "at": "28 00:00"}, "0 0 28 * *"),
        ({"cron": "*/10 6-18 1,15 * 1-5"}, "*/10 6-18 1,15 * 1-5"),
        ({"cron": "0 0 29 2 *"}, "0 0 29 2 *"),
        ({"cron": "0 0 31 2-4 *"}, "0 0 31 2-4 *"),
        ({"cron": "0 0 31 4/2,*/6 *"}, "0 0 31 4/2,*/6 *"),
    ],
)
def test_a_declared_time_is_cron_that_dagster_takes(declared: dict[str, Any], cron: str) -> None:
    spec = RefreshSpec(**declared)
    assert cron_expression(spec.every, spec.at, spec.cron) == cron
    assert is_valid_cron_string(cron)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({}, "either 'every'"),
        ({"every": "day", "cron": "0 6 * * *"}, "either 'every'"),
        ({"cron": "0 6 * * *", "at": "06:00"}, "'at' belongs to 'every'"),
        ({"every": "day", "at": "25:00"}, "write it as '06:00'"),
        ({"every": "day", "at": 630}, "write it in quotes"),
        ({"every": "month", "at": "31 06:00"}, "as '1 06:00', with a day from 1 to 28"),
        ({"cron": "0 6 * *"}, "has 4 fields"),
        ({"cron": "0 24 * * *"}, "'24' is not a hour"),
        ({"cron": "0 0 31 2 *"}, "cron '0 0 31 2 *' names a day that never comes: 31 of"),
        ({"cron": "0 6 30,31 2 *"}, "never comes"),
        ({"cron": "0 6 31 4-6/2,11 *"}, "never comes: 31 of month 4-6/2,11"),
        ({"cron": "0 18-6 * * *"}, "'18-6' is not a hour"),
        ({"every": "day", "timezone": "Europe/Pariss"}, "Europe/Pariss"),
    ],
)
def test_a_wrong_time_is_refused_with_the_remedy(declared: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        RefreshSpec(**declared)
    assert said in str(refused.value)


def test_durations_are_read_and_written_in_words() -> None:
    spec = AutomationSpec.model_validate(
        {"freshness": {"data": "10 days", "model": "3 weeks"}, "start_within": "90 minutes"}
    )
    assert spec.freshness.data == timedelta(days=10)
    assert spec.freshness.model == timedelta(weeks=3)
    written = spec.model_dump(mode="json")
    assert written["freshness"] == {"data": "10 days", "model": "3 weeks"}
    assert written["start_within"] == "90 minutes"
    assert AutomationSpec.model_validate(written) == spec


UNITS, LONG = "write a number and a unit", "is too long for a duration"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        *((text, UNITS) for text in ("10", "ten days", "0 days", "1.5 hours", "-1 day")),
        ("99999999999 weeks", LONG),  # no calendar holds it
    ],
)
def test_what_is_no_duration_is_refused(wrong: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        AutomationSpec.model_validate({"start_within": wrong})
