"""The parts of a page: a verdict, tiles, drawings and tables; these also as Markdown."""

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from ml_assets.reports.drawing import POINTED, POINTED_END
from ml_assets.reports.wording import plain_markdown

IMAGE_BYTES = 15_000
"""Most bytes that one picture should take in the event log."""
TEMPLATES = Path(__file__).parent / "templates"
_MIDDLE_TONES = (
    "svg{--ink:#7b7f89;--soft:#7b7f89;--faint:#858994;--line:#85899440;--axis:#85899499;"
    "--card:transparent;--one:#3b86de;--two:#e0682f;--three:#2fa36b;--four:#a56fd0;--plain:#9a9ca3;"
    "--five:#17a9bd;--six:#e0468f;--seven:#c09a12;--eight:#8f5a38;--nine:#7fae22;--ten:#66708a;"
    "--good:#2b9a41;--wait:#c08415;--bad:#d84f4f}"
)
"""On no ground at all: an image does not know the theme of the page it is on."""
_POINTED = re.compile(
    f"{re.escape(POINTED)}.*?{re.escape(POINTED_END)}|<title>.*?</title>", re.DOTALL
)
_VIEW_BOX = re.compile(r'<svg viewBox="0 0 (\d+) (\d+)"')


@dataclass(frozen=True)
class Verdict:
    """Holds what one reads first on a page: good, bad or still to come, and why."""

    tone: Literal["good", "bad", "wait"]
    headline: str
    reasons: Sequence[str] = ()


@dataclass(frozen=True)
class Tile:
    """A thing that one looks at first: what it is, its value, and what there is to say of it."""

    name: str
    value: str
    below: str = ""
    tone: str = ""
    """``bad``: somebody should look; else plain."""


@dataclass(frozen=True)
class Picture:
    """One drawing, its title, and a sentence that says how to read it."""

    title: str
    words: str
    svg: str

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

    def markdown(self) -> str:
        """Markdown of an asset page."""
        lines = [
            f"| {' | '.join(plain_markdown(cell) for cell in line)} |"
            for line in (self.head, *self.rows)
        ]
        lines.insert(1, f"|{' --- |' * len(self.head)}")
        words = f"{plain_markdown(self.words)}\n\n" if self.words else ""
        body = "\n".join(lines) if self.rows else ""
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
        for rule in _drawing_rules()
        if not (classes := set(re.findall(r"svg \.([a-z]+)", rule))) or classes & used
    ]
    return (_MIDDLE_TONES + "}".join(rules)).replace("\n", "")


@cache
def _drawing_rules() -> list[str]:
    return (TEMPLATES / "drawing.css").read_text().split("}")


def album(shown: Sequence[Picture | Table]) -> str:
    """Markdown of several pictures and tables, one below the other."""
    return "\n\n".join(one.markdown() for one in shown)
