"""When a schedule ticks: from a unit and a time to cron's five fields, checked with the spec."""

import re
from typing import Literal

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
        raise ValueError(f"at {at!r} is not a time of {_a(every)}: write it as {example!r}")
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
            f"cron {text!r} has {len(fields)} fields; five are expected"
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
    return text
