"""Parallel coordinates: one line for each thing, through its place on every axis."""

from collections.abc import Sequence
from dataclasses import dataclass

from ml_assets.reports.drawing import Tone, escape, svg

_WIDTH, _HEIGHT, _SIDE, _TOP, _BOTTOM = 760, 290, 60, 24, 46


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
    step = (_WIDTH - 2 * _SIDE) / (len(axes) - 1)
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
    return svg(name, _WIDTH, _HEIGHT, parts)


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
