"""How metrics are called and written on the page."""

from ml_assets.spec.records import Interval

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
