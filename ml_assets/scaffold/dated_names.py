"""Finds the partition of each file by the date in its name."""

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise, takewhile
from typing import Literal

from ml_assets.spec.partitions import clock_changes

Cadence = Literal["hourly", "daily", "weekly", "monthly"]
_FORMS = (
    re.compile(r"(?<!\d)(\d{4})([-_./]?)(\d{2})\2(\d{2})([-_T/]?)(\d{2})(?!\d)"),
    re.compile(r"(?<!\d)(\d{4})([-_./]?)(\d{2})\2(\d{2})(?!\d)"),
    re.compile(r"(?<!\d)(\d{4})([-_./]?)(\d{2})(?!\d)"),
)
"""Year, month, day and hour; the longest that all names have is taken."""
_WORD = string.ascii_letters + string.digits
"""North and south both end in "th": a star stands for a whole word."""
_PLAIN = "{partition:%Y-%m-%d}"


@dataclass(frozen=True)
class Dated:
    """Files that are partitions of one table."""

    path: str
    """With the partition's place in it, below the folder of the files."""
    cadence: Cadence
    keys: tuple[str, ...]
    """The partition of each file, in their order."""
    day_offset: int
    """The first day of weeks, 0 for Sunday."""


def dated(paths: Sequence[str]) -> Dated | None:
    """The partitions that files are of, by their names; None where these hold no dates.

    Args:
        paths: below one folder, two of them at least.
    """
    for form in _FORMS:
        found = [_moment(form, path) for path in paths]
        known = [one for one in found if one is not None]
        path = _common([template for template, _ in known]) if len(known) == len(paths) else None
        if path is not None:
            return _calendar(path, [moment for _, moment in known], hours=form is _FORMS[0])
    return None


def _calendar(path: str, moments: Sequence[datetime], *, hours: bool) -> Dated | None:
    days = sorted({moment.date() for moment in moments})
    if len({*moments}) < 2:
        return None
    if hours:
        keys = tuple(f"{moment:%Y-%m-%d-%H}:00" for moment in moments)
        return Dated(path, "hourly", keys, 0)
    keys = tuple(f"{moment:%Y-%m-%d}" for moment in moments)
    path = path.replace(_PLAIN, "{partition}")
    if all(day.day == 1 for day in days):
        return Dated(path, "monthly", keys, 0)
    steps = {(later - earlier).days for earlier, later in pairwise(days)}
    if all(step % 7 == 0 for step in steps):
        return Dated(path, "weekly", keys, days[0].isoweekday() % 7)
    return Dated(path, "daily", keys, 0)


def missing(found: Dated) -> tuple[str, ...]:
    """Partitions between the first and the last of which there is no file."""
    if found.cadence == "hourly":
        known = sorted(datetime.fromisoformat(f"{k[:10]}T{k[11:]}") for k in {*found.keys})
        step, written = timedelta(hours=1), "%Y-%m-%d-%H:%M"
    else:
        known = sorted(datetime.fromisoformat(key) for key in {*found.keys})
        step, written = timedelta(days=7 if found.cadence == "weekly" else 1), "%Y-%m-%d"
    there, at, lost = {*known}, known[0], list[str]()
    while at < known[-1]:
        at = _next_month(at) if found.cadence == "monthly" else at + step
        if at not in there:
            lost.append(f"{at:{written}}")
    return tuple(lost)


def hour_comes_twice(found: Dated, zone: str) -> bool:
    """Whether two files of hours would have one name, as the clocks of a zone go back."""
    first, last = int(min(found.keys)[:4]), datetime.now(UTC).year + 1
    return found.cadence == "hourly" and clock_changes(zone, first, last)


def _next_month(at: datetime) -> datetime:
    return (at.replace(day=1) + timedelta(days=32)).replace(day=1)


def _moment(form: re.Pattern[str], path: str) -> tuple[str, datetime] | None:
    """A path with the place of its date, and the date; None: there is none of this form."""
    for found in form.finditer(path):
        year, apart, month, *rest = found.groups()
        day = rest[0] if rest else "01"
        hour = rest[2] if len(rest) > 2 else "00"
        try:
            moment = datetime.fromisoformat(f"{year}-{month}-{day}T{hour}:00:00")
        except ValueError:
            continue
        if not date(1900, 1, 1) <= moment.date() < date(2100, 1, 1):
            continue
        written = f"%Y{apart}%m"
        written += f"{apart}%d" if rest else ""
        written += f"{rest[1]}%H" if len(rest) > 2 else ""
        place = f"{{partition:{written}}}"
        return f"{path[: found.start()]}{place}{path[found.end() :]}", moment
    return None


def _common(templates: Sequence[str]) -> str | None:
    """One path for all, with a ``*`` where names differ; None where they differ in the date's."""
    parts = [template.split("/") for template in templates]
    if not parts or len({len(one) for one in parts}) > 1:
        return None
    found: list[str] = []
    for texts in zip(*parts, strict=True):
        merged = texts[0] if len({*texts}) == 1 else _merged(texts)
        if ("{partition" in texts[0] or "%" in texts[0]) and merged.count("%") != texts[0].count(
            "%"
        ):
            return None
        found.append(merged)
    return "/".join(found)


def _merged(texts: Sequence[str]) -> str:
    begin = _alike(texts)
    end = _alike([text[len(begin) :][::-1] for text in texts])[::-1]
    return f"{begin.rstrip(_WORD)}*{end.lstrip(_WORD)}"


def _alike(texts: Sequence[str]) -> str:
    """What all of them begin with."""
    same = takewhile(lambda signs: len({*signs}) == 1, zip(*texts, strict=False))
    return "".join(signs[0] for signs in same)
