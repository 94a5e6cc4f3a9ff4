"""What runs by itself: when a model is made again, what is watched, and how old things may get."""

import re
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, PlainSerializer, field_validator, model_validator

from ml_assets.spec.base import Frozen, check_timezone
from ml_assets.spec.cron import Every, cron_expression

Status = Literal["running", "stopped"]
"""What a sensor or schedule is until somebody switches it in the UI."""

_UNITS = {"minute": 60, "hour": 3600, "day": 86400, "week": 604800}


def parse_duration(value: object) -> object:
    """``10 days`` -> a timedelta; minutes, hours, days and weeks are understood."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"([1-9][0-9]*) (minute|hour|day|week)s?", value.strip())
    if not found:
        raise ValueError(
            f"{value!r} is not a duration: write a number and a unit"
            " (minutes, hours, days, weeks), such as '10 days'"
        )
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


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


class Timed(Frozen):
    """What happens on a schedule, and when."""

    every: Every | None = None
    at: str | None = None
    """hour: ``:15``; day: ``06:00``; week: ``monday 06:00``; month: ``1 06:00`` (day 1 to 28)."""
    cron: str | None = None
    """Instead of ``every``: minute, hour, day of the month, month, day of the week."""
    timezone: str | None = None
    """Default: that of the partitions."""
    status: Status = "running"

    @field_validator("at", "cron", mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        if isinstance(value, int):  # YAML reads 10:30 as 630 minutes
            raise ValueError("write it in quotes, such as '10:30': YAML takes it for a number")
        return value

    @field_validator("timezone")
    @classmethod
    def _timezone_exists(cls, value: str | None) -> str | None:
        return value if value is None else check_timezone(value)

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
    """Take in what lands in the sources, as soon as a partition has data in all of them."""

    retrain: bool = False
    """Then make the model again, once its data is published."""
    status: Status = "running"


class FreshnessSpec(Frozen):
    """How long ago the newest materialization may be before the asset shows as overdue."""

    data: Duration | None = None
    """feature_set and training_set."""
    model: Duration | None = None
    """released_model."""


class AutomationSpec(Frozen):
    """What a pipeline does by itself. Nothing declared: it runs when somebody says so."""

    refresh: RefreshSpec | None = None
    resume_drill: ResumeDrillSpec | None = None
    landing: LandingSpec | None = None
    on_code_change: bool = False
    """Make again what was made by other code or another spec than the present one."""
    freshness: FreshnessSpec = FreshnessSpec()
    start_within: Duration = timedelta(minutes=15)
    """A run that was asked for and has not begun by then shows as a failed check."""
