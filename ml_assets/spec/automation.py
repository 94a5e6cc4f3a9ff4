"""The spec of automation: when a pipeline trains, what is watched, how old things may get."""

import re
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, PlainSerializer, field_validator, model_validator

from ml_assets.errors import counted
from ml_assets.spec.base import Frozen, Timezone

Every = Literal["hour", "day", "week", "month"]

_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_CLOCK = r"(?P<hour>[01]?[0-9]|2[0-3]):(?P<minute>[0-5][0-9])"
_AT: dict[Every, tuple[str, str, str]] = {
    # every: pattern, example, default
    "hour": (r":(?P<minute>[0-5][0-9])", ":15", ":00"),
    "day": (_CLOCK, "06:00", "06:00"),
    "week": (rf"(?P<weekday>{'|'.join(_WEEKDAYS)}) {_CLOCK}", "monday 06:00", "monday 06:00"),
    "month": (rf"(?P<day>[1-9]|1[0-9]|2[0-8]) {_CLOCK}", "1 06:00", "1 06:00"),
}
_CRON_FIELDS = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of the month", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 7),
)
_DAYS = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""Month -> its last day, in some year."""

Status = Literal["running", "stopped"]
"""What a sensor or schedule is until somebody switches it in the UI."""

_UNITS = {"minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_SHORT = {"min": "minute", "h": "hour", "d": "day", "w": "week"}


def parse_duration(value: object) -> object:
    """``10 days``, or ``10d`` -> a timedelta; minutes, hours, days and weeks are understood."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"([1-9][0-9]*)(?: (minute|hour|day|week)s?|(min|h|d|w))", value.strip())
    if not found:
        raise ValueError(
            f"{value!r} is not a duration: write a number and a unit"
            " (minutes, hours, days, weeks), such as '10 days' or '10d'"
        )
    unit = found[2] or _SHORT[found[3]]
    try:
        return timedelta(seconds=int(found[1]) * _UNITS[unit])
    except OverflowError as error:
        raise ValueError(f"{value!r} is too long for a duration") from error


def duration_text(value: timedelta) -> str:
    """The largest unit that says it without a fraction: ``10 days``."""
    seconds = int(value.total_seconds())
    unit = next(
        (u for u in ("week", "day", "hour") if seconds and seconds % _UNITS[u] == 0), "minute"
    )
    count = seconds // _UNITS[unit]
    return f"{count} {unit}{'' if count == 1 else 's'}"


Duration = Annotated[
    timedelta, BeforeValidator(parse_duration), PlainSerializer(duration_text, return_type=str)
]


def cron_expression(every: Every | None, at: str | None, cron: str | None) -> str:
    """A schedule in cron's five fields: ``cron`` itself, or a unit and a time within it.

    Raises:
        ValueError: it does not say a time; the message shows how to write one.
    """
    if cron is not None:
        return _checked(cron)
    assert every is not None
    pattern, example, default = _AT[every]
    found = re.fullmatch(pattern, (at or default).lower())
    if not found:
        days = ", with a day from 1 to 28" if every == "month" else ""
        raise ValueError(f"at {at!r} is not a time of {_a(every)}: write it as {example!r}{days}")
    part = found.groupdict()
    hour = int(part["hour"]) if "hour" in part else "*"
    day_of_month = part.get("day") or "*"
    weekday = _WEEKDAYS.index(part["weekday"]) if "weekday" in part else "*"
    return f"{int(part['minute'])} {hour} {day_of_month} * {weekday}"


def _a(unit: Every) -> str:
    return f"{'an' if unit == 'hour' else 'a'} {unit}"


def _checked(text: str) -> str:
    fields = text.split()
    if len(fields) != len(_CRON_FIELDS):
        raise ValueError(
            f"cron {text!r} has {counted(len(fields), 'field')}; five are expected"
            " (minute hour day-of-month month day-of-week), such as '0 6 * * 1'"
        )
    for field, (name, low, high) in zip(fields, _CRON_FIELDS, strict=True):
        for part in field.split(","):
            found = re.fullmatch(r"(?:\*|(\d+)(?:-(\d+))?)(?:/[1-9]\d*)?", part)
            numbers = [int(n) for n in found.groups() if n] if found else []
            in_order = numbers == sorted(numbers)
            if not found or not in_order or not all(low <= n <= high for n in numbers):
                raise ValueError(
                    f"cron {text!r}: {part!r} is not a {name}"
                    f" (a number from {low} to {high}, a range, '*', or '*/n')"
                )
    _, _, days, months, _ = fields
    if min(_numbers(days, 31)) > max(_DAYS[n] for n in _numbers(months, 12)):
        raise ValueError(f"cron {text!r} names a day that never comes: {days} of month {months}")
    return text


def _numbers(field: str, high: int) -> set[int]:
    """The days, or months, that a field of a cron expression stands for."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        begin = 1 if span == "*" else int(first)
        end = int(last) if last else (high if step or span == "*" else begin)
        found.update(range(begin, end + 1, int(step or 1)))
    return found


class Timed(Frozen):
    """A schedule, and what it starts."""

    every: Every | None = None
    at: str | None = None
    """hour: ``:15``; day: ``06:00``; week: ``monday 06:00``; month: ``1 06:00`` (day 1 to 28)."""
    cron: str | None = None
    """Instead of ``every``: minute, hour, day of the month, month, day of the week."""
    timezone: Timezone | None = None
    """Default: that of the partitions."""
    status: Status = "running"

    @field_validator("at", "cron", mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        if isinstance(value, int):  # YAML reads 10:30 as 630 minutes
            raise ValueError("write it in quotes, such as '10:30': YAML reads it as a number")
        return value

    @model_validator(mode="after")
    def _says_when_once(self) -> Self:
        if (self.every is None) == (self.cron is None):
            raise ValueError("say when: either 'every' (and 'at'), or 'cron'")
        if self.cron is not None and self.at is not None:
            raise ValueError("'at' belongs to 'every': a cron expression holds its own time")
        cron_expression(self.every, self.at, self.cron)
        return self


class RefreshSpec(Timed):
    """Train again on a schedule, on what is published by then; skipped when nothing is due."""


class ResumeDrillSpec(Timed):
    """Prove on a schedule that a killed training resumes to the same weights, on a short one."""


class LandingSpec(Frozen):
    """Ingest data that arrives in the sources, as soon as all of them have a partition."""

    retrain: bool = False
    """Also train a new model, once its data is published."""
    status: Status = "running"


class FreshnessSpec(Frozen):
    """Limits the age of the newest materialization; an older asset shows as overdue."""

    data: Duration | None = None
    """feature_set and training_set."""
    model: Duration | None = None
    """released_model."""


class AutomationSpec(Frozen):
    """States what a pipeline does automatically. Without it, runs are started by hand."""

    refresh: RefreshSpec | None = None
    resume_drill: ResumeDrillSpec | None = None
    landing: LandingSpec | None = None
    on_code_change: bool = False
    """Make assets again that other code or another spec made."""
    freshness: FreshnessSpec = FreshnessSpec()
    start_within: Duration = timedelta(minutes=15)
    """A run that was asked for and has not begun by then shows as a failed check."""
