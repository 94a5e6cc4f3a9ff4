"""The partition that a feature function makes rows for."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Window:
    """The half-open span ``[start, end)`` in UTC; all None for a pipeline without partitions."""

    key: str | None
    start: datetime | None
    end: datetime | None
