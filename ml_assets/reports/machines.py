"""What machines were used for, month by month: columns of their time, and of what it cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ml_assets.reports.drawing import Axis, Stack, Tone, column_chart, number
from ml_assets.reports.picture import Picture

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
    """What the machines of a month were used for; parts that there were none of are left out."""

    name: str
    """``2026-01``."""
    hours: Mapping[str, float]
    cost: Mapping[str, float]
    """Empty: no price is known."""


def machine_pictures(months: Sequence[Month]) -> list[Picture]:
    """Node-hours, and money where all months that have hours have a price; oldest month first."""
    hours = [month.hours for month in months]
    if not any(hours):
        return []
    names = [month.name for month in months]
    time = sum(sum(one.values()) for one in hours)
    words = f"{number(time)} node-hours"
    shown = [_picture("Machine time by month", "node-hours", words, names, hours)]
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
