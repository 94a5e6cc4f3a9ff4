"""Computes when a schedule is due, as Dagster's daemon counts it, also at clock changes."""

from datetime import datetime
from zoneinfo import ZoneInfo

import dagster as dg


def due_times(cron: str, timezone: str, since: datetime, until: datetime) -> list[datetime]:
    """Return the times between two moments, both included, oldest first.

    Dagster has no public iterator over a cron schedule, but windows that begin where one is due.
    """
    windows = dg.TimeWindowPartitionsDefinition(
        start=since.astimezone(ZoneInfo(timezone)),
        cron_schedule=cron,
        timezone=timezone,
        fmt="%Y-%m-%dT%H:%M:%S%z",
        end_offset=1,  # the last window has begun, and not ended
    )
    keys = windows.get_partition_keys(current_time=until)
    found = (datetime.fromisoformat(key) for key in keys)
    return [time for time in found if since <= time <= until]
