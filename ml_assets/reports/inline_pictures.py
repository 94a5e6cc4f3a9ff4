"""Pictures so small that Dagster shows them on the asset page itself, not behind a button.

Dagster renders Markdown there that is shorter than ``INLINE``, the picture's own bytes included.
"""

import html
from base64 import b64encode
from collections.abc import Sequence
from math import isfinite

from ml_assets.errors import visible
from ml_assets.reports.drawing import Bar, Series
from ml_assets.reports.wording import plain_markdown

INLINE = 1000
"""Characters: longer Markdown is a button, ``[Show Markdown]``."""
_ROW, _NAMES, _WIDTH, _LETTERS = 20, 170, 380, 22
_POINTS, _HEIGHT = 24, 90
_INK = {"one": "#3b86de", "two": "#e0682f", "plain": "#9a9ca3"}


def glance_at_bars(title: str, bars: Sequence[Bar], start: float = 0.0) -> str:
    """Bars with their names and values, the first in colour; of too many, the first ones.

    Nothing where there are none.
    """
    shown = [bar for bar in bars if isfinite(bar.value)]
    if not bars:
        return ""
    for most in range(len(shown), 0, -1):
        found = _markdown(title, _bars(shown[:most], start))
        if len(found) < INLINE:
            return found
    return plain_markdown(title)


def glance_at_lines(title: str, lines: Sequence[Series], low: float | None = None) -> str:
    """Curves over one range, without axes, with their names and last values; none: nothing.

    Args:
        low: where the range begins; None: at the lowest value.
    """
    if not any(line.points for line in lines):
        return ""
    return _markdown(title, _lines(lines, low))


def _markdown(title: str, svg: str) -> str:
    file = b64encode(svg.encode()).decode()
    words = plain_markdown(title)
    return f"{words}\n\n![{words}](data:image/svg+xml;base64,{file})"


def _svg(height: int, body: str) -> str:
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{height}'"
        f" fill='none' stroke-width='11'>{body}</svg>"
    )


def _bars(bars: Sequence[Bar], start: float) -> str:
    longest = max(max(bar.value - start for bar in bars), 0.0) or 1.0
    paths = [
        f"M{_NAMES} {_ROW * place + 10}h"
        f"{max(1, round((_WIDTH - _NAMES) * (bar.value - start) / longest))}"
        for place, bar in enumerate(bars)
    ]
    names = "".join(
        f"<tspan x='0' dy='{_ROW}'>{_text(bar.label)} {_number(bar.value)}</tspan>" for bar in bars
    )
    return _svg(
        _ROW * len(bars),
        f"<path d='{paths[0]}' stroke='{_INK['one']}'/>"
        f"<path d='{''.join(paths[1:])}' stroke='{_INK['plain']}'/>" + _words(names),
    )


def _lines(lines: Sequence[Series], low: float | None) -> str:
    thin = [one.points[:: -(-len(one.points) // _POINTS)] for one in lines]
    across = [x for points in thin for x, _ in points]
    along = [y for points in thin for _, y in points]
    left, low = min(across), min(along) if low is None else low
    wide, high = (max(across) - left) or 1.0, (max(along) - low) or 1.0
    paths = ""
    for one, points in zip(lines, thin, strict=True):
        places = "L".join(
            f"{_NAMES + round((_WIDTH - _NAMES) * (x - left) / wide)}"
            f" {_HEIGHT - 3 - round((_HEIGHT - 6) * (y - low) / high)}"
            for x, y in points
        )
        paths += f"<path d='M{places}' stroke='{_INK[one.tone]}' stroke-width='2'/>"
    names = "".join(
        f"<tspan x='0' dy='{_ROW}' fill='{_INK[one.tone]}'>{_text(one.name)}"
        f" {_number(one.points[-1][1])}</tspan>"
        for one in lines
    )
    return _svg(_HEIGHT, paths + _words(names))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _words(rows: str) -> str:
    return f"<text y='-6' fill='#7b7f89' style='font:12px sans-serif'>{rows}</text>"


def _text(name: str) -> str:
    """A name as long as there is room for; what XML may not hold is written out."""
    seen = visible(name)
    return html.escape(seen if len(seen) <= _LETTERS else f"{seen[: _LETTERS - 1]}…")
