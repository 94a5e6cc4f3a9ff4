"""Finds how far data has arrived in a calendar that has passed: there the partitions of the UI
end."""

from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path
from zoneinfo import ZoneInfo

from ml_assets.assets.raw_snapshot.readers.listing import Found, list_local
from ml_assets.assets.raw_snapshot.readers.pattern import Pattern, pattern_of
from ml_assets.errors import SourceError
from ml_assets.spec.partitions import windows
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.sources import EventsSource, FilesSource


def arrived_until(spec: PipelineSpec, root: Path, now: datetime) -> date | None:
    """The day on which the newest partition ends that a folder below ``root`` holds.

    None where that is not for us to say: ``partitions.end`` has not passed, no partitioned source
    is a folder here, nothing has arrived, or a folder has a gap, which everybody should see.
    """
    calendar = spec.partitions
    zone = ZoneInfo(calendar.timezone)
    if calendar.end is None or calendar.cadence == "hourly":  # it ends with a day, hours do not
        return None
    if now < datetime.combine(calendar.end, time(), zone):
        return None
    known = windows(calendar, now)
    newest = 0
    for name, pattern in _folders(spec):
        there = [_holds(name, pattern.at(partition=window.key), root) for window in known]
        arrived = sum(there)
        if not all(there[:arrived]):
            return None
        newest = max(newest, arrived)
    return known[newest - 1].end.astimezone(zone).date() if newest else None


def _folders(spec: PipelineSpec) -> Iterator[tuple[str, Pattern]]:
    for name, source in spec.sources.items():
        if isinstance(source, FilesSource | EventsSource) and source.partitioned:
            pattern = pattern_of(source.path)
            if not pattern.is_s3 and not source.versioned:
                yield name, pattern


def _holds(name: str, pattern: Pattern, root: Path) -> bool:
    try:
        return any(isinstance(found, Found) for found in list_local(name, root, pattern))
    except SourceError:  # reading it says why
        return False
