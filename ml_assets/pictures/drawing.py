"""Charts as inline SVG: lines, dots and bars, drawn here: the page needs nothing from outside.

Colours are the page's CSS variables (see ``style``), so one drawing reads in light and in dark.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Literal

Point = tuple[float, float]

_RIGHT, _TOP, _BOTTOM = 14, 14, 40
_HOVER_POINTS = 48
_BARS_WIDTH, _LABEL_WIDTH, _BAR_HEIGHT, _ROW_HEIGHT = 420, 132, 16, 32


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    points: Sequence[Point]
    tone: Literal["one", "two"] = "one"
    dots: bool = False
    """Mark each point: a measurement of its own, not a sample of a curve."""


@dataclass(frozen=True)
class Axis:
    """What an axis shows; without a range it takes the data's, rounded outwards."""

    label: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Reference:
    """A dashed line to compare with, from one point to another, in units of the data."""

    start: Point
    end: Point


@dataclass(frozen=True)
class Bar:
    """One horizontal bar; ``low`` and ``high`` are the ends of its interval, if it has one."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    tone: Literal["one", "two", "plain"] = "plain"


def line_chart(
    name: str,
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    reference: Reference | None = None,
    note: str = "",
    wide: bool = False,
) -> str:
    """An SVG of one or two lines.

    Args:
        name: what the picture shows, for a screen reader.
        reference: drawn dashed, behind the data.
        note: a few words in the lower right corner of the plot.
        wide: for a card of half the page, not a third.
    """
    points = [point for one in series for point in one.points]
    width, height, left = (520, 260, 62) if wide else (360, 270, 46)
    frame = _Frame(
        _Scale.over([p[0] for p in points], x, left, width - _RIGHT),
        _Scale.over([p[1] for p in points], y, height - _BOTTOM, _TOP),
    )
    parts = [*_grid(frame, x, y)]
    if reference is not None:
        (x1, y1), (x2, y2) = frame.place(reference.start), frame.place(reference.end)
        parts.append(f'<line class="reference" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')
    for one in series:
        parts += _line(one, frame, x, y)
    if note:
        at = f'x="{frame.x.end - 6:g}" y="{frame.y.start - 9:g}"'
        parts.append(f'<text class="note" {at} text-anchor="end">{escape(note)}</text>')
    return _svg(name, width, height, parts)


def bar_chart(name: str, bars: Sequence[Bar], *, start: float, digits: int = 4) -> str:
    """An SVG of horizontal bars that begin at ``start``, each with its value at its end."""
    ends = [end for bar in bars for end in (bar.value, bar.high) if end is not None]
    scale = _Scale(start, max([*ends, start + 1e-9]), _LABEL_WIDTH, _BARS_WIDTH - 66)
    height = _ROW_HEIGHT * len(bars) + 10
    parts: list[str] = []
    for index, bar in enumerate(bars):
        middle = index * _ROW_HEIGHT + _ROW_HEIGHT / 2 + 5
        parts += _bar(bar, scale, middle, digits)
    axis = f'x1="{_LABEL_WIDTH}" y1="3" x2="{_LABEL_WIDTH}" y2="{height - 3}"'
    parts.append(f'<line class="axis" {axis}/>')
    return _svg(name, _BARS_WIDTH, height, parts)


def number(value: float) -> str:
    """A short form for a tick or a tooltip: 0.25, 1,200, 2e-04."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 1e-3:
        return f"{value:.2g}"
    return f"{value:.4f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class _Scale:
    """A linear map from [low, high] of the data to [start, end] of the picture."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], axis: Axis, start: float, end: float) -> "_Scale":
        low = axis.low if axis.low is not None else min(values, default=0.0)
        high = axis.high if axis.high is not None else max(values, default=1.0)
        if high - low < 1e-12:
            low, high = low - (abs(low) * 0.1 or 0.5), high + (abs(high) * 0.1 or 0.5)
        step = _step(low, high)
        low = low if axis.low is not None else floor(low / step + 1e-9) * step
        high = high if axis.high is not None else ceil(high / step - 1e-9) * step
        return cls(low, high, start, end)

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + min(max(share, 0.0), 1.0) * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        step = _step(self.low, self.high)
        first, last = ceil(self.low / step - 1e-9), floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


@dataclass(frozen=True)
class _Frame:
    x: _Scale
    y: _Scale

    def place(self, point: Point) -> Point:
        return self.x(point[0]), self.y(point[1])


def _step(low: float, high: float) -> float:
    """1, 2 or 5 times a power of ten, for about five ticks."""
    raw = (high - low) / 5
    power = 10.0 ** floor(log10(raw))
    return next(power * nice for nice in (1, 2, 5, 10) if power * nice >= raw * 0.999)


def _grid(frame: _Frame, x: Axis, y: Axis) -> list[str]:
    left, right, base = frame.x.start, frame.x.end, frame.y.start
    parts: list[str] = []
    for tick in frame.y.ticks():
        at = frame.y(tick)
        parts.append(f'<line class="grid" x1="{left:g}" y1="{at}" x2="{right:g}" y2="{at}"/>')
        parts.append(
            f'<text x="{left - 7:g}" y="{at + 3.5}" text-anchor="end">{number(tick)}</text>'
        )
    for tick in frame.x.ticks():
        at = frame.x(tick)
        parts.append(f'<text x="{at}" y="{base + 15:g}" text-anchor="middle">{number(tick)}</text>')
    parts.append(f'<line class="axis" x1="{left:g}" y1="{base:g}" x2="{right:g}" y2="{base:g}"/>')
    middle_x, middle_y = (left + right) / 2, (_TOP + base) / 2
    parts.append(
        f'<text class="label" x="{middle_x}" y="{base + 33:g}" text-anchor="middle">'
        f"{escape(x.label)}</text>"
    )
    parts.append(
        f'<text class="label" transform="translate(11 {middle_y}) rotate(-90)"'
        f' text-anchor="middle">{escape(y.label)}</text>'
    )
    return parts


def _line(one: Series, frame: _Frame, x: Axis, y: Axis) -> list[str]:
    if not one.points:
        return []
    path = " ".join(f"{px:g},{py:g}" for px, py in map(frame.place, one.points))
    parts = [f'<polyline class="line {one.tone}" points="{path}"/>']
    every = max(1, ceil(len(one.points) / _HOVER_POINTS))
    shown = one.points if one.dots else one.points[::every]
    for point in shown:
        px, py = frame.place(point)
        said = f"{x.label} {number(point[0])}, {one.name or y.label} {number(point[1])}"
        mark = f"dot {one.tone}" if one.dots else f"hover {one.tone}"
        parts.append(
            f'<circle class="{mark}" cx="{px:g}" cy="{py:g}" r="4"><title>{escape(said)}</title>'
            "</circle>"
        )
    return parts


def _bar(bar: Bar, scale: _Scale, middle: float, digits: int) -> list[str]:
    top, left, right = middle - _BAR_HEIGHT / 2, scale(scale.low), scale(bar.value)
    width = max(right - left, 1.0)
    round_ = min(4.0, width)
    said = f"{bar.label}: {bar.value:.{digits}f}"
    parts = [
        f'<text class="name" x="{_LABEL_WIDTH - 9}" y="{middle + 4}" text-anchor="end">'
        f"{escape(bar.label)}</text>",
        f'<path class="bar {bar.tone}" d="M{left} {top}h{width - round_:.1f}'
        f"q{round_} 0 {round_} {round_}v{_BAR_HEIGHT - 2 * round_:g}"
        f'q0 {round_} -{round_} {round_}h-{width - round_:.1f}z">'
        f"<title>{escape(said)}</title></path>",
    ]
    end = left + width
    if bar.low is not None and bar.high is not None:
        low, high = scale(bar.low), scale(bar.high)
        end = max(end, high)
        caps = f"M{low} {middle - 4}v8M{high} {middle - 4}v8"
        parts.append(f'<path class="whisker" d="M{low} {middle}H{high}{caps}"/>')
    parts.append(
        f'<text class="value" x="{end + 7}" y="{middle + 4}">{bar.value:.{digits}f}</text>'
    )
    return parts


def _svg(name: str, width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(name)}">'
        f"{''.join(parts)}</svg>"
    )
