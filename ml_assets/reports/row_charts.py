"""Charts of rows, one thing a row: intervals, gates against their bounds, small lines over time,
what was taken for what, and lines through parallel axes."""

from collections.abc import Sequence
from dataclasses import dataclass

from ml_assets.reports.drawing import Axis, Scale, Tone, escape, number, svg
from ml_assets.spec.records import Interval

_WIDTH, _NAME, _VALUE, _ROW = 520, 168, 78, 22
_SPARK = 15
_STRIP = 110
_LONGEST_NAME = 26
_WIDE_LETTER = 7.2
"""Width of a name's letter, in px, on the wide side."""


@dataclass(frozen=True)
class Whisker:
    """A value with the ends of its interval, drawn as a dot with a whisker."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    tone: Tone = "one"
    head: str = ""
    """Begins a group of this name."""


@dataclass(frozen=True)
class Bullet:
    """A value against its bound; ``higher``: the good side is above."""

    label: str
    value: float | None
    bound: float | None
    passed: bool
    higher: bool
    interval: Interval | None = None
    """The interval of what was estimated; drawn where there is a bound."""
    percent: bool = False
    """Value and bound are written as shares."""


@dataclass(frozen=True)
class Spark:
    """A small line over time; ``shown`` is what is written at its end."""

    label: str
    values: Sequence[float | None]
    shown: str
    tone: Tone = "one"


@dataclass(frozen=True)
class Strip:
    """A small column chart: how the values of one column lie, and a few words of them."""

    label: str
    heights: Sequence[float]
    shown: str
    ordered: bool = True
    """Along a scale; else by frequency."""


def strip_chart(name: str, rows: Sequence[Strip]) -> str:
    """An SVG of distributions, each as high as its highest column."""
    left, right = _NAME + 6, _NAME + 6 + _STRIP
    parts: list[str] = []
    for index, row in enumerate(rows):
        base = (index + 1) * _ROW
        parts.append(_name(row.label, base - 4))
        parts.append(f'<path class="grid" d="M{left} {base}H{right}"/>')
        wide, top = _STRIP / max(1, len(row.heights)), max(row.heights, default=0.0) or 1.0
        path = "".join(
            f"M{left + place * wide:.1f} {base}v-{max(height / top * _SPARK, 0.8):.1f}"
            f"h{max(wide - 0.6, 0.6):.1f}V{base}z"
            for place, height in enumerate(row.heights)
            if height > 0
        )
        tone = "one" if row.ordered else "two"
        parts.append(f'<path class="bar {tone}" d="{path}"/>' if path else "")
        parts.append(_text("value", right + 9, base - 3, row.shown))
    return svg(name, _WIDTH, len(rows) * _ROW + 6, parts)


def estimate_chart(
    name: str, rows: Sequence[Whisker], x: Axis, *, reference: float | None = None, digits: int = 3
) -> str:
    """An SVG of dots with whiskers on one scale (a forest plot), the value written at the right."""
    ends = [end for row in rows for end in (row.value, row.low, row.high) if end is not None]
    ends += [reference] if reference is not None else []
    scale = Scale.over(ends, x, _NAME + 6, _WIDTH - _VALUE)
    parts: list[str] = []
    middle = 4.0
    for row in rows:
        middle += _ROW
        if row.head:
            parts.append(_text("value head", 0, middle, row.head))
            middle += _ROW
        parts += _estimate(row, scale, middle, digits)
    base = middle + 16
    grid = [
        f'<line class="grid" x1="{scale(at):g}" y1="8" x2="{scale(at):g}" y2="{base:g}"/>'
        f'<text x="{scale(at):g}" y="{base + 13:g}" text-anchor="middle">{escape(said)}</text>'
        for at, said in scale.ticks(x)
    ]
    if reference is not None:
        at = f'x1="{scale(reference):g}" y1="8" x2="{scale(reference):g}" y2="{base:g}"'
        grid.append(f'<line class="reference" {at}/>')
    centre = (scale.start + scale.end) / 2
    grid.append(
        f'<text class="label" x="{centre:g}" y="{base + 29:g}" text-anchor="middle">'
        f"{escape(x.label)}</text>"
    )
    return svg(name, _WIDTH, round(base + 36), [*grid, *parts])


def bullet_chart(name: str, rows: Sequence[Bullet]) -> str:
    """An SVG of gates: the good side of each bound is tinted, the dot is the value."""
    parts: list[str] = []
    for index, row in enumerate(rows):
        parts += _bullet(row, index * _ROW + 15)
    return svg(name, _WIDTH, _ROW * len(rows) + 8, parts)


def spark_chart(name: str, rows: Sequence[Spark], span: tuple[str, str]) -> str:
    """An SVG of small lines, each on a scale of its own from zero to its highest value.

    Args:
        span: what the left and the right end stand for.
    """
    left, right = _NAME + 6, _WIDTH - 120
    parts: list[str] = []
    for index, row in enumerate(rows):
        base = (index + 1) * _ROW
        scale = Scale(0, max([1, len(row.values) - 1]), left, right)
        top = max([value for value in row.values if value is not None], default=0.0) or 1.0
        height = Scale(0, top, base, base - _SPARK)
        parts.append(_name(row.label, base - 4))
        parts.append(f'<path class="grid" d="M{left} {base}H{right}"/>')
        parts += [
            f'<polyline class="line {row.tone}" points="{points}"/>'
            for points in _runs(row.values, scale, height)
        ]
        parts.append(_text("value", right + 9, base - 3, row.shown))
    base = len(rows) * _ROW + 15
    parts.append(_text("", left, base, span[0]))
    parts.append(f'<text x="{right}" y="{base}" text-anchor="end">{escape(span[1])}</text>')
    return svg(name, _WIDTH, base + 6, parts)


def _estimate(row: Whisker, scale: Scale, middle: float, digits: int) -> list[str]:
    parts = [_name(row.label, middle + 4)]
    if row.low is not None and row.high is not None:
        low, high = scale(row.low), scale(row.high)
        parts.append(f'<path class="whisker {row.tone}" d="M{low:g} {middle:g}H{high:g}"/>')
    said = f"{row.label}: {row.value:.{digits}f}"
    parts.append(
        f'<circle class="dot {row.tone}" cx="{scale(row.value):g}" cy="{middle:g}" r="4">'
        f"<title>{escape(said)}</title></circle>"
    )
    parts.append(_text("value", _WIDTH - _VALUE + 10, middle + 4, f"{row.value:.{digits}f}"))
    return parts


def _bullet(row: Bullet, middle: float) -> list[str]:
    left, right = _NAME + 6, _WIDTH - 150
    tone: Tone = "good" if row.passed else "bad"
    parts = [_name(row.label, middle + 4)]
    track = f'y="{middle - 4:g}" height="8" rx="2"'
    parts.append(f'<rect class="track" x="{left}" {track} width="{right - left}"/>')
    if row.bound is not None:
        ends = [0.0, row.bound, *([row.value] if row.value is not None else [])]
        ends += [row.interval.low, row.interval.high] if row.interval else []
        room = 0.15 * (max(ends) - min(ends)) or 1.0
        scale = Scale(min(ends) - room * (min(ends) < 0), max(ends) + room, left, right)
        centre = scale(row.bound)
        begin, wide = (centre, right - centre) if row.higher else (left, centre - left)
        parts.append(f'<rect class="side good" x="{begin:g}" {track} width="{wide:g}"/>')
        parts.append(f'<path class="whisker" d="M{centre:g} {middle - 8:g}v16"/>')
        if row.interval is not None:
            low, high = scale(row.interval.low), scale(row.interval.high)
            parts.append(f'<path class="whisker {tone}" d="M{low:g} {middle:g}H{high:g}"/>')
        if row.value is not None:
            parts.append(
                f'<circle class="dot {tone}" cx="{scale(row.value):g}" cy="{middle:g}" r="5"/>'
            )
    parts.append(_text("value", right + 9, middle + 4, _relation(row)))
    return parts


def _relation(row: Bullet) -> str:
    """The value and its bound as they stand to each other: of a gate that failed, how it did."""
    mark = "✓" if row.passed else "✗"
    value, bound = (_said(number, row.percent) for number in (row.value, row.bound))
    if row.bound is None:
        return f"{mark} {value}"
    asked = "≥" if row.higher else "≤"
    if row.passed or row.value is None:
        return f"{mark} {value} {asked} {bound}"
    if value == bound and row.value != row.bound:  # rounded, they would look equal
        value, bound = f"{row.value:.6g}", f"{row.bound:.6g}"
    holds = ">" if row.value > row.bound else "<" if row.value < row.bound else "="
    return f"{mark} {value} {holds} {bound}"


def _said(value: float | None, percent: bool) -> str:
    if value is None:
        return "–"
    return f"{value:+.2%}" if percent else number(value)


def _runs(values: Sequence[float | None], x: Scale, y: Scale) -> list[str]:
    """The points of each unbroken run; where a value is missing, the line is too."""
    runs: list[list[str]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append(f"{x(place):.0f},{y(value):g}")
    return [" ".join(run if len(run) > 1 else run * 2) for run in runs if run]


def _name(label: str, y: float) -> str:
    short = _short(label, _LONGEST_NAME)
    room = _NAME - 6
    tight = f' textLength="{room}" lengthAdjust="spacingAndGlyphs"'  # whatever the font is
    fits = "" if _WIDE_LETTER * len(short) <= room else tight
    return (
        f'<text class="name" x="{_NAME - 3}" y="{y:g}" text-anchor="end"{fits}>{escape(short)}'
        f"<title>{escape(label)}</title></text>"
    )


def _text(kind: str, x: float, y: float, said: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(said)}</text>'


_AXES_WIDTH, _HEIGHT, _SIDE, _TOP, _BOTTOM = 760, 290, 60, 24, 46


@dataclass(frozen=True)
class Upright:
    """An axis, and what its places are called: 0 is its foot, 1 its top."""

    name: str
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True)
class Thread:
    """One thing: its place on each axis, from 0 to 1."""

    name: str
    places: Sequence[float]
    tone: Tone = "one"
    thin: bool = True


def parallel_chart(name: str, axes: Sequence[Upright], threads: Sequence[Thread]) -> str:
    """An SVG of threads through two axes or more; the last thread lies above the others.

    Args:
        name: what the picture shows, for a screen reader.
    """
    step = (_AXES_WIDTH - 2 * _SIDE) / (len(axes) - 1)
    xs = [_SIDE + step * number for number in range(len(axes))]
    parts: list[str] = []
    for one in threads:
        path = " ".join(f"{x:.1f},{_y(at):.1f}" for x, at in zip(xs, one.places, strict=True))
        kind = "thin" if one.thin else "line"
        parts.append(
            f'<polyline class="{kind} {one.tone}" points="{path}">'
            f"<title>{escape(one.name)}</title></polyline>"
        )
    for x, axis in zip(xs, axes, strict=True):
        parts += _axis(x, axis)
    return svg(name, _AXES_WIDTH, _HEIGHT, parts)


def _axis(x: float, axis: Upright) -> list[str]:
    parts = [f'<line class="axis" x1="{x:.1f}" y1="{_y(1):g}" x2="{x:.1f}" y2="{_y(0):g}"/>']
    for at, said in axis.ticks:
        aside, below = {0.0: (0, 14), 1.0: (0, -7)}.get(at, (-12, -6))  # where few lines cross it
        where = f'x="{x + aside:.1f}" y="{_y(at) + below:.1f}" text-anchor="middle"'
        parts.append(f"<text {where}>{escape(said)}</text>")
    where = f'x="{x:.1f}" y="{_HEIGHT - 8}" text-anchor="middle"'
    parts.append(f'<text class="label" {where}>{escape(axis.name)}</text>')
    return parts


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


_CELL_WIDTH, _CELL_HEIGHT, _LETTER, _LONGEST_HEAD = 40, 30, 6.6, 14


def matrix_chart(
    name: str,
    rows: Sequence[str],
    columns: Sequence[str],
    counts: Sequence[Sequence[int]],
    axes: tuple[str, str],
) -> str:
    """An SVG of counts and their shares of the row; the diagonal is right, all else is wrong.

    Args:
        columns: begin with the rows' names, in their order.
        axes: what the rows and what the columns are.
    """
    long = _longest(columns)
    level = long <= _CELL_WIDTH - 4
    left, top = round(30 + _longest(rows)), 34 if level else round(26 + 0.71 * long)
    right, base = left + _CELL_WIDTH * len(columns), top + _CELL_HEIGHT * len(rows)
    parts = [*_shades(counts, left, top), _lattice(left, top, right, base)]
    for place, label in enumerate(columns):
        at = f"translate({left + _CELL_WIDTH * (place + 0.5):g} {top - 7})"
        turned = f'text-anchor="middle" transform="{at}"'
        turned = turned if level else f'transform="{at} rotate(-45)"'
        parts.append(_head(label, turned))
    for place, (label, found) in enumerate(zip(rows, counts, strict=True)):
        y = top + _CELL_HEIGHT * place
        parts.append(_head(label, f'x="{left - 7}" y="{y + 19}" text-anchor="end"'))
        parts += _numbers(found, left, y)
    parts.append(
        f'<text class="label" transform="translate(11 {(top + base) / 2:g}) rotate(-90)"'
        f' text-anchor="middle">{escape(axes[0])}</text>'
        f'<text class="label" x="{left}" y="11">{escape(axes[1])}</text>'
    )
    aside = 6 if level else round(0.71 * long)
    return svg(name, right + aside, base + 6, parts, natural=True)


def _longest(labels: Sequence[str]) -> float:
    return _LETTER * max(len(_short(label, _LONGEST_HEAD)) for label in labels)


def _head(label: str, where: str) -> str:
    short = escape(_short(label, _LONGEST_HEAD))
    return f'<text class="name" {where}>{short}<title>{escape(label)}</title></text>'


def _shades(counts: Sequence[Sequence[int]], left: int, top: int) -> list[str]:
    """One path for all cells of one shade: it is what takes the least room."""
    paths: dict[tuple[Tone, float], str] = {}
    for row, found in enumerate(counts):
        for column, count in enumerate(found):
            if not count:
                continue
            share = count / sum(found)
            # a rare confusion has to be seen, and the number on the darkest cell to be read
            dark = 0.05 + 0.35 * share if row == column else 0.1 + 0.3 * share**0.5
            shade: tuple[Tone, float] = ("one" if row == column else "bad", round(dark / 0.05))
            x, y = left + _CELL_WIDTH * column, top + _CELL_HEIGHT * row
            cell = f"M{x} {y}h{_CELL_WIDTH}v{_CELL_HEIGHT}h-{_CELL_WIDTH}z"
            paths[shade] = paths.get(shade, "") + cell
    return [
        f'<path class="bar {tone}" fill-opacity="{dark * 0.05:.2f}" d="{path}"/>'
        for (tone, dark), path in sorted(paths.items())
    ]


def _lattice(left: int, top: int, right: int, base: int) -> str:
    across = "".join(f"M{left} {y}H{right}" for y in range(top, base + 1, _CELL_HEIGHT))
    down = "".join(f"M{x} {top}V{base}" for x in range(left, right + 1, _CELL_WIDTH))
    return f'<path class="grid" d="{across}{down}"/>'


def _numbers(found: Sequence[int], left: int, y: int) -> list[str]:
    """The counts of a row, and below them their shares of it; nothing where there are none."""
    seen = [(left + _CELL_WIDTH * n + _CELL_WIDTH // 2, c) for n, c in enumerate(found) if c]
    counts = "".join(f'<tspan x="{x}">{_count(count)}</tspan>' for x, count in seen)
    shares = "".join(f'<tspan x="{x}">{_share(count / sum(found))}</tspan>' for x, count in seen)
    return [
        f'<text class="value" y="{y + 14}" text-anchor="middle">{counts}</text>',
        f'<text class="label" y="{y + 25}" text-anchor="middle">{shares}</text>',
    ]


def _count(count: int) -> str:
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1e3:.0f}k" if count < 999_500 else f"{count / 1e6:.1f}M"


def _share(share: float) -> str:
    """In %; all of a row, or none of it, is only said where it is."""
    if 0.995 <= share < 1:
        return f"{min(100 * share, 99.9):.1f}%"
    return f"{100 * share:.0f}%" if share >= 0.01 else f"{max(100 * share, 0.1):.1f}%"


def _short(label: str, most: int) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"
