"""The last months of a pipeline's machines, as pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ml_assets.assets.trained_model.cost.jobs import jobs_of
from ml_assets.assets.trained_model.cost.money import HOUR
from ml_assets.assets.trained_model.cost.split import PARTS
from ml_assets.errors import counted
from ml_assets.extras.cost.bill import Line, bill
from ml_assets.reports.drawing import Axis, Stack, Tone, column_chart, number
from ml_assets.reports.picture import Picture
from ml_assets.store.pipeline_context import Pipeline

LAST = 12
"""Months that are shown, up to the newest one with a job; those without are there too."""
TONES: Mapping[str, Tone] = {
    "useful": "three",
    "recomputed": "one",
    "stalled": "warn",
    "queued": "plain",
    "failed": "bad",
    "refused": "four",
}
"""From below."""
_FREE = "queued"
"""Nobody pays for what is not held."""


@dataclass(frozen=True)
class Month:
    """Holds what the machines of a month were used for; what there was none of is left out."""

    name: str
    """``2026-01``."""
    hours: Mapping[str, float]
    cost: Mapping[str, float]
    """Empty: no price is known."""


def pictures_of(pipeline: Pipeline) -> list[Picture]:
    """Return what the machines of a pipeline were used for; none where it used none.

    Raises:
        StorageError: a record cannot be read.
    """
    return machine_pictures(months(bill(jobs_of(pipeline, pipeline.settings.prices), "month", {})))


def this_month(pipeline: Pipeline, now: datetime) -> tuple[str, str]:
    """Return what the machines of a pipeline cost in the month of a moment, and how long they ran.

    Raises:
        StorageError: a record cannot be read.
    """
    lines = bill(jobs_of(pipeline, pipeline.settings.prices), "month", {})
    line = next((one for one in lines if one.name == f"{now:%Y-%m}"), None)
    if line is None:
        return "nothing", "no machine was used"
    hours, jobs = line.node_time / HOUR, f"in {counted(line.jobs, 'job')}"
    spent = f"{number(hours)} node-hours" if hours >= 1 else f"{float(hours * 60):.1f} minutes"
    if line.unpriced or line.machines is None:
        return spent, f"{jobs}; their price is not known (ML_ASSETS_PRICES)"
    return f"{float(line.machines):,.2f}", f"{spent} {jobs}"


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


def machine_pictures(months: Sequence[Month]) -> list[Picture]:
    """Node-hours, and money where all months that have hours have a price; oldest month first."""
    hours = [month.hours for month in months]
    if not any(hours):
        return []
    names = [month.name for month in months]
    time = sum(sum(one.values()) for one in hours)
    unit, times = ("node-hours", 1) if time >= 1 else ("node-minutes", 60)
    spent = [{part: one * times for part, one in month.items()} for month in hours]
    words = f"{number(round(time * times, 1))} {unit}"
    shown = [_picture("Machine time by month", unit, words, names, spent)]
    if all(month.cost for month in months if set(month.hours) - {_FREE}):
        costs = [month.cost for month in months]
        paid = sum(sum(one.values()) for one in costs)
        shown.append(_picture("Cost by month", "cost of machines", f"{paid:,.2f}", names, costs))
    return shown


def _picture(
    title: str, unit: str, total: str, names: Sequence[str], told: Sequence[Mapping[str, float]]
) -> Picture:
    parts = {part: [month.get(part, 0.0) for month in told] for part in TONES}
    stacks = [Stack(part, parts[part], TONES[part]) for part in parts if any(parts[part])]
    whole = sum(sum(one.values) for one in stacks) or 1.0
    shares = ", ".join(f"{sum(one.values) / whole:.1%} {one.name}" for one in stacks)
    chart = column_chart(title, stacks, Axis("month", names=names), Axis(unit, 0.0))
    return Picture(title, f"{total}: {shares}.", chart)
