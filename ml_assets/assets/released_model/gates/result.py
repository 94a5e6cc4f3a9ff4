"""The result of a gate; a value that is missing or not a number fails."""

from math import isfinite

from ml_assets.spec.gates import MetricName
from ml_assets.spec.records import EvaluationReport, GateResult, Interval


def result(
    name: str,
    fine: bool,
    value: float | None,
    bound: float | None,
    reason: str,
    interval: Interval | None = None,
) -> GateResult:
    """Return what a gate says of a value that was held to a bound.

    Args:
        interval: of what was estimated; left out where an end of it is no number.
    """
    known = interval if interval is not None and finite(interval) else None
    return GateResult(
        name=name, passed=fine, value=value, bound=bound, reason=reason, interval=known
    )


def refused(name: str, bound: float | None, why: str) -> GateResult:
    """The result of a gate that had nothing to hold to its bound: refused."""
    return result(name, False, None, bound, f"{why}: refused")


def finite(interval: Interval) -> bool:
    """Return whether all of it are numbers."""
    return all(isfinite(end) for end in (interval.value, interval.low, interval.high))


def metric_of(report: EvaluationReport, name: MetricName) -> float | None:
    """The candidate's value, or None where it is absent or not a number."""
    found = report.metrics.get(name)
    return found.value if found is not None and isfinite(found.value) else None


def absent(name: str, metric: str, bound: float | None) -> GateResult:
    """The report lacks the metric that a gate is about."""
    return refused(name, bound, f"the report has no {metric} of this model")
