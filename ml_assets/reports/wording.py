"""How metrics are called, and how any text is written on a page."""

import html
import re

from ml_assets.errors import visible
from ml_assets.spec.records import Interval, LedgerEntry

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|])")

TITLES = {
    "auc": "ROC AUC",
    "average_precision": "Average precision",
    "log_loss": "Log-loss",
    "brier": "Brier score",
    "accuracy": "Accuracy",
    "ece": "Calibration error",
    "rmse": "RMSE",
    "mae": "Mean absolute error",
    "r2": "R²",
    "ndcg": "NDCG",
}


def title(metric: str) -> str:
    """The metric's name for a reader; an unknown one as it is."""
    return TITLES.get(metric, metric)


def digits(metric: str) -> int:
    """Decimals worth showing."""
    return 3 if metric == "accuracy" else 4


def with_ends(interval: Interval | None) -> str:
    """A value with the ends of its interval; a dash where there is none."""
    if interval is None:
        return "–"
    value, low, high = (plain_number(x) for x in (interval.value, interval.low, interval.high))
    return f"{value} ({low} to {high})"


def plain_number(value: float | None) -> str:
    """A value of any size in four significant decimals; a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.1f}"


def happened(entry: LedgerEntry) -> str:
    """What a line of the ledger says, in a word or two."""
    if entry.decision is not None:
        word = "passed" if entry.decision.passed else "refused"
        return f"{word} as canary" if entry.decision.canary else word
    words = {"registration": "registered", "override": "OVERRIDE", "recall": "recalled"}
    if entry.kind in words:
        return words[entry.kind]
    return f"rollback to {entry.stage}" if entry.because else f"to {entry.stage}"


def by_a_person(entry: LedgerEntry) -> bool:
    """Whether somebody answers for a line by name: nobody decided it by rule."""
    return entry.kind in ("override", "recall") or entry.because is not None


def escape(text: str) -> str:
    """Text on a page of HTML: every word of data, people and specs goes through here."""
    return html.escape(visible(text))


def plain_markdown(text: str) -> str:
    """Text that Markdown and HTML take for nothing else: the same for Dagster's asset pages."""
    return _MARKDOWN.sub(r"\\\1", visible(" ".join(text.split())))
