"""One run as a row: its main facts, short on an asset page, and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from ml_assets.reports.picture import Table
from ml_assets.reports.wording import digits, order, title
from ml_assets.spec.records import Change, Interval

Tone = Literal["good", "bad", "wait"]
SHORT = 5
"""Runs in the table of an asset page."""


@dataclass(frozen=True)
class RunStatus:
    """The end of a run."""

    tone: Tone
    said: str
    why: str


@dataclass(frozen=True)
class Row:
    """One run; what is not known is None."""

    run: str
    time: datetime
    model: str | None
    report: str | None
    """File of the model's report, beside the page."""
    mlflow: str | None
    """Address of its run in MLflow: settings and curves."""
    outcome: RunStatus
    stage: str | None
    words: Mapping[str, str]
    """experiment, hypothesis, goal: those that were said."""
    verdict: str | None
    note: str | None
    author: str | None
    """The author of the note."""
    metrics: Mapping[str, Interval]
    validation_loss: float | None
    seconds: float | None
    cost: float | None
    rows: int | None
    """To train on."""
    as_of: str | None
    data: str | None
    """Version of the training set."""

    def plain(self) -> dict[str, Any]:
        """The row as plain values for JSON."""
        metrics = {name: found.model_dump(mode="json") for name, found in self.metrics.items()}
        return {**asdict(self), "time": self.time.isoformat(), "metrics": metrics}


@dataclass(frozen=True)
class ReleaseStep:
    """Holds what a release changed against the one before it."""

    time: datetime
    before: str
    after: str
    changes: Sequence[Change]


def short_table(rows: Sequence[Row], most: int = SHORT) -> Table:
    """The newest runs, for an asset page."""
    name = lead(rows)
    lines = [
        [
            f"{row.time:%Y-%m-%d %H:%M}",
            row.words.get("experiment", "–"),
            _interval_text(row.metrics.get(name), name) if name else "–",
            plain_loss(row.validation_loss),
            span(row.seconds),
            row.outcome.said + (f", {row.stage}" if row.stage else ""),
        ]
        for row in rows[:most]
    ]
    head = ["begun (UTC)", "experiment", title(name) if name else "metric"]
    return Table("The last runs", "", [*head, "validation loss", "training took", "came to"], lines)


def lead(rows: Sequence[Row]) -> str:
    """The metric to show where there is room for one; empty where nothing was judged."""
    return min({name for row in rows for name in row.metrics}, key=order, default="")


def span(seconds: float | None) -> str:
    """A time as a person says it: 12 s, 3.4 min, 2.1 h."""
    if seconds is None:
        return "–"
    if seconds == 0:
        return "reused"
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 6000 else f"{seconds / 3600:,.3g} h"


def _interval_text(found: Interval | None, name: str) -> str:
    if found is None:
        return "–"
    low, high = (f"{end:.{digits(name)}f}" for end in (found.low, found.high))
    return f"{found.value:.{digits(name)}f} ({low} to {high})"


def plain_loss(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
