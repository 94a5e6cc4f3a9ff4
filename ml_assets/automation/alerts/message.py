"""Builds the message of an alert from causes of one kind and pipeline."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Literal

from ml_assets.errors import outside

SCHEMA = 1
SHOWN = 12
"""Most causes that one message lists; the others are counted."""
LINE = 600
"""Most characters of one cause."""

Kind = Literal[
    "failed contract",
    "failed check",
    "drift",
    "stale data",
    "failed run",
    "run that never started",
    "test",
]


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong now, named the same at every look for as long as it is."""

    id: str
    kind: Kind
    pipeline: str
    what: str
    """One sentence or two, fit for people outside: what they quote is left out."""
    link: str
    """Where the UI shows it, whole."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "what", outside(self.what))


@dataclass(frozen=True)
class Message:
    """A message to send: the causes of one kind of one pipeline that were not told yet."""

    causes: tuple[Cause, ...]
    time: datetime

    @property
    def title(self) -> str:
        """One line: pipeline and kind, and how often."""
        first = self.causes[0]
        many = f" ({len(self.causes)})" if len(self.causes) > 1 else ""
        return f"{_line(first.pipeline)}: {first.kind}{many}"

    @property
    def text(self) -> str:
        """Plain text: a paragraph for each cause, with its link."""
        parts = [f"{_line(cause.what)}\n{cause.link}" for cause in self.causes[:SHOWN]]
        return "\n\n".join([*parts, *self._left_out()])

    def document(self) -> dict[str, Any]:
        """The JSON of a webhook."""
        first = self.causes[0]
        return {
            "schema": SCHEMA,
            "kind": first.kind,
            "pipeline": first.pipeline,
            "title": self.title,
            "text": self.text,
            "link": first.link,
            "causes": [cause.id for cause in self.causes],
            "time": self.time.astimezone(UTC).isoformat(timespec="seconds"),
        }

    def _left_out(self) -> list[str]:
        left = len(self.causes) - SHOWN
        return [f"and {left:,} more."] if left > 0 else []


def messages(causes: Sequence[Cause], now: datetime) -> Iterator[Message]:
    """One message for each pipeline and kind, in the order of their names."""

    def subject(cause: Cause) -> tuple[str, str]:
        return cause.pipeline, cause.kind

    for _, together in groupby(sorted(causes, key=subject), key=subject):
        yield Message(tuple(together), now)


def _line(text: str) -> str:
    """On one line, no longer than a message bears."""
    words = " ".join(text.split())
    return words if len(words) <= LINE else f"{words[: LINE - 1]}…"
