"""A drawing with its words: inline in the report, an image that holds itself on an asset page."""

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from ml_assets.reports.drawing import POINTED, POINTED_END
from ml_assets.reports.style import DRAWING, IMAGE
from ml_assets.reports.wording import escape, plain_markdown

IMAGE_BYTES = 15_000
"""Most bytes that one picture should take in the event log."""
_POINTED = re.compile(
    f"{re.escape(POINTED)}.*?{re.escape(POINTED_END)}|<title>.*?</title>", re.DOTALL
)
_VIEW_BOX = re.compile(r'<svg viewBox="0 0 (\d+) (\d+)"')


@dataclass(frozen=True)
class Picture:
    """One drawing, its title, and a sentence that says how to read it."""

    title: str
    words: str
    svg: str

    def card(self) -> str:
        """HTML of the report page."""
        return (
            f'<div class="card"><h3>{escape(self.title)}</h3><p>{escape(self.words)}</p>'
            f"{self.svg}</div>"
        )

    def markdown(self) -> str:
        """Markdown of an asset page: the title, the words, the drawing as an image."""
        words = f"{plain_markdown(self.words)}\n\n" if self.words else ""
        return f"#### {plain_markdown(self.title)}\n\n{words}{image(self.title, self.svg)}"


@dataclass(frozen=True)
class Table:
    """Rows of text under a head; the first cell of a row names it."""

    title: str
    words: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def card(self) -> str:
        """HTML of the report page, without the title: a section has one."""
        words = f'<p class="about">{escape(self.words)}</p>' if self.words else ""
        head = "".join(f"<th>{escape(cell)}</th>" for cell in self.head)
        body = "".join(
            f"<tr><th>{escape(row[0])}</th>"
            + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
            + "</tr>"
            for row in self.rows
        )
        table = (
            f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )
        return f"{words}{table if self.rows else ''}"

    def markdown(self) -> str:
        """Markdown of an asset page."""
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        cells = [
            f"| {' | '.join(cell if cell == '---' else plain_markdown(cell) for cell in line)} |"
            for line in lines
        ]
        words = f"{plain_markdown(self.words)}\n\n" if self.words else ""
        body = "\n".join(cells) if self.rows else ""
        return f"#### {plain_markdown(self.title)}\n\n{words}{body}"


def image(alternative: str, svg: str) -> str:
    """A drawing as a Markdown image that holds itself; it reads on a light and on a dark page."""
    file = b64encode(svg_file(svg).encode()).decode()
    return f"![{plain_markdown(alternative)}](data:image/svg+xml;base64,{file})"


def svg_file(svg: str) -> str:
    """A drawing as a file of its own: with its style and size, without what needs a pointer."""
    still = _POINTED.sub("", svg)
    opened = _VIEW_BOX.sub(
        r'<svg xmlns="http://www.w3.org/2000/svg" width="\1" height="\2" viewBox="0 0 \1 \2"',
        still,
        count=1,
    )
    start = opened.index(">") + 1
    return f"{opened[:start]}<style>{_style(opened)}</style>{opened[start:]}"


def _style(svg: str) -> str:
    """The rules of the classes that a drawing uses: a third of all."""
    used = {name for names in re.findall(r'class="([^"]*)"', svg) for name in names.split()}
    rules = [
        rule
        for rule in DRAWING.split("}")
        if not (classes := set(re.findall(r"svg \.([a-z]+)", rule))) or classes & used
    ]
    return (IMAGE + "}".join(rules)).replace("\n", "")


def album(shown: Sequence[Picture | Table]) -> str:
    """Markdown of several pictures and tables, one below the other."""
    return "\n\n".join(one.markdown() for one in shown)
