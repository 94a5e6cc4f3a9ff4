"""Draws charts as SVG: lines, columns and bars, without anything from outside.

Colours are CSS variables (``templates/drawing.css``), so one drawing reads in light and in dark,
inside a page and as a picture of an asset page. It escapes what it writes, and pages insert it
unchanged.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Literal, get_args

from ml_assets.errors import visible

Point = tuple[float, float]
Hue = Literal["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
Tone = Literal[Hue, "plain", "good", "warn", "bad"]
HUES: tuple[Hue, ...] = get_args(Hue)
"""The colours that tell things apart and say nothing else."""

_RIGHT, _TOP, _BOTTOM, _KEYS = 14, 14, 40, 18
_HOVER_POINTS = 48
_TITLE, _DIGIT = 22, 6.3
"""Room for the title of a y axis, and for each letter of its ticks, in px."""
_NOTE = 84, 24
"""Room for a note, in px."""
_NAMED = 3
"""Parts that the names of a time axis cut it into."""
POINTED, POINTED_END = '<g class="pointed">', "</g>"
"""Around what only a pointer finds; a picture that is an image goes without it."""
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that no XML may hold; a category's name may."""
_BARS_WIDTH, _LABEL_WIDTH, _BAR_HEIGHT, _ROW_HEIGHT = 420, 132, 16, 32
_LETTER = 7
"""Width of a letter of a bar's label, in px, on the wide side."""


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    points: Sequence[Point]
    tone: Tone = "one"
    dots: bool = False
    """Mark each point: a measurement of its own, not a sample of a curve."""
    joined: bool = True
    """Draw the line from point to point."""
    thin: bool = False
    """One of many lines that are seen together, not read one by one."""


@dataclass(frozen=True)
class Stack:
    """One part of every column of a chart; parts are stacked in their order, from below."""

    name: str
    values: Sequence[float]
    tone: Tone = "one"


@dataclass(frozen=True)
class Axis:
    """Holds what an axis shows; without a range it takes the data's, rounded outwards."""

    label: str
    low: float | None = None
    high: float | None = None
    names: Sequence[str] = ()
    """What 0, 1, 2, ... are called: the partitions along a time axis."""


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
    tone: Tone = "plain"


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
    """An SVG of lines; where they differ in name, with a key above them.

    Args:
        name: what the picture shows, for a screen reader.
        reference: drawn dashed, behind the data.
        note: a few words in the lower right corner of the plot; in the upper, where data lie there.
        wide: for a card of half the page, not a third.
    """
    points = [point for one in series for point in one.points]
    width, height, least = (520, 260, 62) if wide else (360, 270, 46)
    heights = [p[1] for p in points]
    left = _left(heights, y, least)
    keys, high = _keys([(one.name, one.tone) for one in series], left, width)
    height += max(0, high - _KEYS)
    frame = _Frame(
        Scale.over([p[0] for p in points], x, left, width - _RIGHT),
        Scale.over(heights, y, height - _BOTTOM, _TOP + high),
    )
    parts = [*keys, *_grid(frame, x, y)]
    if reference is not None:
        (x1, y1), (x2, y2) = frame.place(reference.start), frame.place(reference.end)
        parts.append(f'<line class="reference" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')
    for one in series:
        parts += _line(one, frame, x, y)
    if note:
        dashed = [reference.start, reference.end] if reference else []
        low = _is_free([frame.place(point) for point in (*points, *dashed)], frame)
        at = f'x="{frame.x.end - 6:g}" y="{frame.y.start - 9 if low else frame.y.end + 12:g}"'
        parts.append(f'<text class="note" {at} text-anchor="end">{escape(note)}</text>')
    return svg(name, width, height, parts)


def _left(values: Sequence[float], y: Axis, least: int) -> int:
    """Where a plot begins: the title of its y axis stands beside the numbers, not over them."""
    said = [name for _, name in Scale.over(values, y, 0, 1).ticks(y)]
    return max(least, ceil(_TITLE + _DIGIT * max(map(len, said), default=0)))


def _is_free(placed: Sequence[Point], frame: "_Frame") -> bool:
    """Whether nothing is drawn in the lower right corner of a plot."""
    wide, tall = _NOTE
    return not any(x > frame.x.end - wide and y > frame.y.start - tall for x, y in placed)


def column_chart(name: str, stacks: Sequence[Stack], x: Axis, y: Axis) -> str:
    """An SVG of columns at 0, 1, 2, ... along x, each a stack of parts."""
    width, height = 520, 200
    count = max((len(stack.values) for stack in stacks), default=0)
    tops = [sum(values) for values in zip(*(stack.values for stack in stacks), strict=True)]
    left = _left([0.0, *tops], y, 62)
    keys, high = _keys([(stack.name, stack.tone) for stack in stacks], left, width)
    height += max(0, high - _KEYS)
    frame = _Frame(
        Scale(-0.5, max(count, 1) - 0.5, left, width - _RIGHT),
        Scale.over([0.0, *tops], y, height - _BOTTOM, _TOP + high),
    )
    parts = [*keys, *_grid(frame, x, y)]
    below = [0.0] * count
    for stack in stacks:
        parts.append(f'<path class="bar {stack.tone}" d="{_columns(frame, stack.values, below)}"/>')
        below = [low + value for low, value in zip(below, stack.values, strict=True)]
    return svg(name, width, height, parts)


def bar_chart(name: str, bars: Sequence[Bar], *, start: float, digits: int = 4) -> str:
    """An SVG of horizontal bars that begin at ``start``, each with its value at its end."""
    ends = [end for bar in bars for end in (bar.value, bar.high) if end is not None]
    left = max([_LABEL_WIDTH, *(9 + _LETTER * len(bar.label) for bar in bars)])
    width = _BARS_WIDTH + left - _LABEL_WIDTH
    scale = Scale(start, max([*ends, start + 1e-9]), left, width - 66)
    height = _ROW_HEIGHT * len(bars) + 10
    parts: list[str] = []
    for index, bar in enumerate(bars):
        middle = index * _ROW_HEIGHT + _ROW_HEIGHT / 2 + 5
        parts += _bar(bar, scale, middle, digits)
    axis = f'x1="{left}" y1="3" x2="{left}" y2="{height - 3}"'
    parts.append(f'<line class="axis" {axis}/>')
    return svg(name, width, height, parts)


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
class Scale:
    """A linear map from [low, high] of the data to [start, end] of the picture."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], axis: Axis, start: float, end: float) -> "Scale":
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

    def ticks(self, axis: Axis) -> list[tuple[float, str]]:
        """Return where the axis is marked, and with what."""
        if axis.names:
            last = len(axis.names) - 1
            places = sorted({round(last * part / _NAMED) for part in range(_NAMED + 1)})
            return [(float(place), axis.names[place]) for place in places]
        step = _step(self.low, self.high)
        first, last = ceil(self.low / step - 1e-9), floor(self.high / step + 1e-9)
        return [(index * step, number(index * step)) for index in range(first, last + 1)]


@dataclass(frozen=True)
class _Frame:
    x: Scale
    y: Scale

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
    for tick, said in frame.y.ticks(y):
        at = frame.y(tick)
        parts.append(f'<line class="grid" x1="{left:g}" y1="{at:g}" x2="{right:g}" y2="{at:g}"/>')
        parts.append(
            f'<text x="{left - 7:g}" y="{at + 3.5:g}" text-anchor="end">{escape(said)}</text>'
        )
    for tick, said in frame.x.ticks(x):
        at = frame.x(tick)
        anchor = "end" if len(said) > 5 and at > right - 30 else "middle"
        parts.append(
            f'<text x="{at:g}" y="{base + 15:g}" text-anchor="{anchor}">{escape(said)}</text>'
        )
    parts.append(f'<line class="axis" x1="{left:g}" y1="{base:g}" x2="{right:g}" y2="{base:g}"/>')
    middle_x, middle_y = (left + right) / 2, (frame.y.end + base) / 2
    parts.append(
        f'<text class="label" x="{middle_x}" y="{base + 33:g}" text-anchor="middle">'
        f"{escape(x.label)}</text>"
    )
    parts.append(
        f'<text class="label" transform="translate(11 {middle_y}) rotate(-90)"'
        f' text-anchor="middle">{escape(y.label)}</text>'
    )
    return parts


def _keys(named: Sequence[tuple[str, Tone]], left: float, width: float) -> tuple[list[str], int]:
    """What each colour stands for, where there is more than one; and the height that it takes."""
    unique = list(dict.fromkeys((name, tone) for name, tone in named if name))
    if len(unique) < 2:
        return [], 0
    parts: list[str] = []
    at, line = left, 0
    for name, tone in unique:
        if at > left and at + 19 + 6 * len(name) > width:
            at, line = left, line + 1
        y = 10 + line * _KEYS
        parts.append(f'<path class="line {tone}" d="M{at:g} {y}h14"/>')
        parts.append(f'<text class="label" x="{at + 19:g}" y="{y + 3.5:g}">{escape(name)}</text>')
        at += 36 + 6 * len(name)
    return parts, _KEYS * (line + 1)


def _columns(frame: _Frame, values: Sequence[float], below: Sequence[float]) -> str:
    """One path for all columns of a part: a year of days is still a small picture."""
    step = abs(frame.x(1) - frame.x(0))
    width = max(1.0, round(step * 0.8, 1))
    path: list[str] = []
    for place, (value, low) in enumerate(zip(values, below, strict=True)):
        top, bottom = frame.y(low + value), frame.y(low)
        if value > 0:
            tall = max(round(bottom - top, 1), 1.0)
            path.append(
                f"M{frame.x(place) - width / 2:.1f} {bottom:g}v-{tall:g}h{width:g}v{tall:g}z"
            )
    return "".join(path)


def _line(one: Series, frame: _Frame, x: Axis, y: Axis) -> list[str]:
    if not one.points:
        return []
    path = " ".join(f"{px:g},{py:g}" for px, py in map(frame.place, one.points))
    kind = "thin" if one.thin else "line"
    parts = [f'<polyline class="{kind} {one.tone}" points="{path}"/>'] if one.joined else []
    if one.dots:
        parts += _marks(one, one.points, frame, x, y)
    elif not one.thin:
        every = max(1, ceil(len(one.points) / _HOVER_POINTS))
        parts += [POINTED, *_marks(one, one.points[::every], frame, x, y), POINTED_END]
    return parts


def _marks(one: Series, points: Sequence[Point], frame: _Frame, x: Axis, y: Axis) -> list[str]:
    kind = "dot" if one.dots else "hover"
    parts: list[str] = []
    for point in points:
        px, py = frame.place(point)
        where = x.names[int(point[0])] if x.names else f"{x.label} {number(point[0])}"
        said = f"{where}, {one.name or y.label} {number(point[1])}"
        parts.append(
            f'<circle class="{kind} {one.tone}" cx="{px:g}" cy="{py:g}" r="4">'
            f"<title>{escape(said)}</title></circle>"
        )
    return parts


def _bar(bar: Bar, scale: Scale, middle: float, digits: int) -> list[str]:
    top, left, right = middle - _BAR_HEIGHT / 2, scale(scale.low), scale(bar.value)
    width = max(right - left, 1.0)
    round_ = min(4.0, width)
    said = f"{bar.label}: {bar.value:.{digits}f}"
    parts = [
        f'<text class="name" x="{left - 9}" y="{middle + 4}" text-anchor="end">'
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


def escape(text: str) -> str:
    """Text within a drawing: names and values of the data are nothing but text."""
    return html.escape(visible(text))


def banner(name: str, said: str) -> str:
    """An SVG of one sentence on red, which nobody overlooks."""
    parts = [
        '<rect class="bar bad" x="0" y="0" width="560" height="30" rx="4"/>',
        f'<text class="note" x="12" y="20">{escape(said)}</text>',
    ]
    return svg(name, 560, 30, parts)


def svg(name: str, width: int, height: int, parts: Sequence[str], *, natural: bool = False) -> str:
    """The drawing around its parts, named for a screen reader.

    Args:
        natural: drawn in its own size, and not much smaller: it is full of numbers.
    """
    size = f' style="max-width:{width}px;min-width:{width * 3 // 4}px"' if natural else ""
    drawn = (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(name)}"{size}>'
        f"{''.join(parts)}</svg>"
    )
    return _NO_XML.sub("", drawn)
