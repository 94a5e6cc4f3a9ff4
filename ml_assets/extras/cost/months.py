"""The last months of a pipeline's machines, as pictures."""

from collections.abc import Sequence
from datetime import datetime

from ml_assets.assets.trained_model.cost.jobs import jobs_of
from ml_assets.assets.trained_model.cost.money import HOUR
from ml_assets.assets.trained_model.cost.split import PARTS
from ml_assets.extras.cost.bill import Line, bill
from ml_assets.reports.machines import Month, machine_pictures
from ml_assets.reports.picture import Picture
from ml_assets.settings import Prices
from ml_assets.store.pipeline_context import Pipeline

LAST = 12
"""Months that are shown, up to the newest one with a job; those without are there too."""


def pictures_of(pipeline: Pipeline, prices: Prices) -> list[Picture]:
    """What the machines of a pipeline were used for; none where it used none.

    Raises:
        StorageError: a record cannot be read.
    """
    return machine_pictures(months(bill(jobs_of(pipeline, prices), "month", {})))


def months(lines: Sequence[Line]) -> list[Month]:
    """The last twelve months, oldest first, from the lines of those in which something ran."""
    known = {line.name: line for line in lines}
    if not known:
        return []
    return [_month(name, known.get(name)) for name in _until(max(known))]


def _until(last: str) -> list[str]:
    """``2026-01`` -> 2025-02 ... 2026-01."""
    newest = datetime.strptime(f"{last}-01+0000", "%Y-%m-%d%z")
    count = newest.year * 12 + newest.month - 1
    return [f"{one // 12}-{one % 12 + 1:02d}" for one in range(count - LAST + 1, count + 1)]


def _month(name: str, line: Line | None) -> Month:
    if line is None:
        return Month(name, {}, {})
    hours = {part: line.split[part] / HOUR for part in PARTS if line.split[part]}
    cost = {part: float(cost) for part, cost in line.costs.items() if cost}
    return Month(name, hours, {} if line.unpriced else cost)
