"""The pictures of a drift report: what drifted, by how much and since when."""

from collections.abc import Sequence

from ml_assets.assets.drift_report.findings import DriftReport, Shape
from ml_assets.assets.drift_report.verdict import TITLES, measured, summary
from ml_assets.reports.drawing import Axis, Bar, Reference, Series, Tone, bar_chart, line_chart
from ml_assets.reports.inline_pictures import glance_at_bars
from ml_assets.reports.picture import Picture, Table
from ml_assets.spec.drift import DriftKind

COLUMNS = 12
"""Most columns that are drawn, the furthest beyond their bounds first."""
_LINES: tuple[tuple[DriftKind, Tone], ...] = (
    ("features", "one"),
    ("domain", "two"),
    ("predictions", "three"),
    ("performance", "four"),
)


def drift_pictures(report: DriftReport) -> list[Picture | Table]:
    """Every picture and table of a report, in the order of the page."""
    return [
        outcomes_table(report),
        *_columns(report),
        *_over_time(report),
        *(_shape(shape, report.newest.period) for shape in report.shapes),
    ]


def at_a_glance(report: DriftReport) -> str:
    """Markdown of how near each kind is to its alarm."""
    ratios = report.history[-1].ratios if report.history else {}
    bars = [Bar(TITLES[kind], ratio) for kind, ratio in ratios.items()]
    title = f"{report.newest.period}: each kind's worst value over its bound, above 1 it drifted"
    return glance_at_bars(title, sorted(bars, key=lambda bar: -bar.value))


def outcomes_table(report: DriftReport) -> Table:
    """A line for each kind of drift, and what could not be judged."""
    sentences = [summary(report), *report.notes]
    words = " ".join(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in sentences)
    rows = [[TITLES[one.kind], one.word, one.reason] for one in report.outcomes]
    return Table("Drift", words, ["kind", "", "why"], rows)


def _columns(report: DriftReport) -> list[Picture]:
    """The newest period: each column's worst statistic over its bound."""
    found = sorted(report.newest.findings, key=lambda one: -one.worst.ratio)[:COLUMNS]
    if not found:
        return []
    bars = [
        Bar(f"{one.column}: {_short(one.kind)}", one.worst.ratio, tone=_tone(one.drifted))
        for one in found
    ]
    chart = bar_chart("Values over their bounds", bars, start=0.0, digits=2)
    first = found[0]
    words = (
        f"Of {report.newest.period}, each in its worst statistic; above 1 it drifted. The first:"
        f" {first.column}, {measured(first.worst)}."
    )
    return [Picture("Furthest from the training rows", words, chart)]


def _short(kind: DriftKind) -> str:
    return {"features": "shape", "nulls": "nulls", "categories": "new"}.get(kind, kind)


def _tone(drifted: bool) -> Tone:
    return "bad" if drifted else "plain"


def _over_time(report: DriftReport) -> list[Picture]:
    history = report.history
    if len(history) < 2:
        return []
    series: list[Series] = []
    for kind, tone in _LINES:
        points = [
            (float(place), min(one.ratios[kind], 5.0))
            for place, one in enumerate(history)
            if kind in one.ratios
        ]
        if points:
            series.append(Series(kind, points, tone, dots=len(history) < 30))
    last = float(len(history) - 1)
    chart = line_chart(
        "Worst value over its bound, by period",
        series,
        Axis("", 0.0, last, [one.period for one in history]),
        Axis("value / bound", 0.0),
        reference=Reference((0.0, 1.0), (last, 1.0)),
        wide=True,
    )
    words = (
        "Above the dashed line a period drifted; at most 5 is drawn. Each period is compared with"
    )
    return [Picture("Drift over time", f"{words} the release of its time.", chart)]


def _shape(shape: Shape, period: str) -> Picture:
    last = float(len(shape.bins) - 1)
    chart = line_chart(
        f"{shape.column}: new against training rows",
        [
            Series("training", _points(shape.training), "plain", dots=True),
            Series(period, _points(shape.new), "one", dots=True),
        ],
        Axis("", 0.0, max(last, 1.0), shape.bins),
        Axis("% of the rows", 0.0),
        wide=True,
    )
    return Picture(shape.column, "Share of the rows in each bin of the training rows.", chart)


def _points(shares: Sequence[float]) -> list[tuple[float, float]]:
    return [(float(place), 100 * share) for place, share in enumerate(shares)]
