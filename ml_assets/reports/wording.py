"""The names of metrics, values and decisions, and the escaping of text in Markdown."""

import re
from collections.abc import Mapping

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
    "skill": "Skill against persistence",
    "ndcg": "NDCG",
    "bits_per_byte": "bits per byte",
}


def title(metric: str) -> str:
    """The metric's name for a reader; an unknown one as it is."""
    return TITLES.get(metric, metric)


def digits(metric: str) -> int:
    """Decimals worth showing."""
    return 3 if metric == "accuracy" else 4


def metric_text(metrics: Mapping[str, float], name: str) -> str:
    """A metric in a table; a dash where it is not defined."""
    return f"{metrics[name]:.{digits(name)}f}" if name in metrics else "–"


def order(name: str) -> tuple[int, str]:
    """Return where a metric stands among others: the known ones first."""
    known = list(TITLES)
    return (known.index(name) if name in known else len(known), name)


def with_ends(interval: Interval | None, percent: bool = False) -> str:
    """A value with the ends of its interval; a dash where there is none."""
    if interval is None:
        return "–"
    ends = (interval.value, interval.low, interval.high)
    value, low, high = (plain_number(x, percent) for x in ends)
    return f"{value} ({low} to {high})"


def plain_number(value: float | None, percent: bool = False) -> str:
    """A value of any size in four significant decimals; a dash where there is none.

    Args:
        percent: it is a share of something, and said with its sign.
    """
    if value is None:
        return "–"
    if percent:
        return f"{value:+.2%}"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.1f}"


def happened(entry: LedgerEntry) -> str:
    """Return what a line of the ledger says, in a word or two."""
    if entry.decision is not None:
        word = "passed" if entry.decision.passed else "refused"
        return f"{word} as canary" if entry.decision.canary else word
    words = {
        "registration": "registered",
        "abort": "TAKEN OUT",
        "override": "OVERRIDE",
        "recall": "recalled",
        "lift": "recall lifted",
    }
    if entry.kind in words:
        return words[entry.kind]
    return f"rollback to {entry.stage}" if entry.because else f"to {entry.stage}"


def by_a_person(entry: LedgerEntry) -> bool:
    """Return whether somebody answers for a line by name: nobody decided it by rule."""
    return entry.kind in ("override", "recall", "lift") or entry.because is not None


def plain_markdown(text: str) -> str:
    """Text that Markdown and HTML take for nothing else: the same for Dagster's asset pages."""
    return _MARKDOWN.sub(r"\\\1", visible(" ".join(text.split())))
