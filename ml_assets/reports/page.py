"""What a page of HTML is put together from: sections, grids of pictures, tables of metrics."""

from collections.abc import Mapping, Sequence

from ml_assets.reports.picture import Picture
from ml_assets.reports.wording import TITLES, digits, escape


def cell(metrics: Mapping[str, float], name: str) -> str:
    """A metric in a table; a dash where it is not defined."""
    text = f"{metrics[name]:.{digits(name)}f}" if name in metrics else "–"
    return f'<td class="n">{text}</td>'


def section(name: str, about: str, body: str) -> str:
    """A part of the page; ``body`` is HTML, the rest is text."""
    words = f'<p class="about">{escape(about)}</p>' if about else ""
    return f"<section><h2>{escape(name)}</h2>{words}{body}</section>"


def cards(shown: Sequence[Picture], *, wide: bool = False) -> str:
    """The pictures in a grid; nothing where there are none."""
    grid = "".join(picture.card() for picture in shown)
    return f'<div class="grid{" two" if wide else ""}">{grid}</div>' if shown else ""


def table(head: str, rows: Sequence[str]) -> str:
    """Rows of HTML under a head of HTML."""
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def order(name: str) -> tuple[int, str]:
    """Where a metric stands among others: the known ones first."""
    known = list(TITLES)
    return (known.index(name) if name in known else len(known), name)
