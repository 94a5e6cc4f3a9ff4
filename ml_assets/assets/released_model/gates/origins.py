"""Which value of a metric a gate holds to its bound: of the holdout, or over several origins."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from ml_assets.spec.gates import HIGHER_IS_BETTER, MetricName
from ml_assets.spec.records import EvaluationReport, Interval, OriginReport


@dataclass(frozen=True)
class HeldValue:
    """A value as a gate takes it."""

    value: float
    interval: Interval | None
    where: str = ""
    """Which origins it is of, as a sentence goes on; empty: the holdout."""


def missing_origins(report: EvaluationReport) -> str:
    """Why there are fewer origins than were asked for; empty where all are there."""
    return report.origins.missing if report.origins else ""


def held_value(report: EvaluationReport, metric: MetricName, *, lowest: bool) -> HeldValue | None:
    """The value that is held to a bound; None where it is absent or not a number.

    Args:
        lowest: of the worst origin: the bound is one that a value must not fall below.
    """
    rolled = report.origins
    if rolled is None:
        return _own(report.metrics.get(metric))
    found = [origin.metrics.get(metric) for origin in rolled.origins]
    known = [one for one in found if one is not None and isfinite(one.value)]
    if len(known) < len(found):
        return None
    values = [one.value for one in known]
    if rolled.judge == "mean":
        mean = rolled.mean.get(metric)
        return _own(mean, _in_the_mean(values)) if mean else None
    place = values.index((min if lowest else max)(values))
    return HeldValue(values[place], known[place], _at_the_worst(rolled.origins, place))


def held_pair(
    report: EvaluationReport, metric: MetricName, baseline: str
) -> tuple[HeldValue, float] | None:
    """The model's value beside the baseline's; None where a side of it is absent."""
    rolled = report.origins
    if rolled is None:
        own, base = _own(report.metrics.get(metric)), report.baselines.get(baseline, {}).get(metric)
        return None if own is None or base is None or not isfinite(base) else (own, base)
    bases = [origin.baselines.get(baseline, {}).get(metric) for origin in rolled.origins]
    known = [one for one in bases if one is not None and isfinite(one)]
    mean = held_value(report, metric, lowest=HIGHER_IS_BETTER[metric])
    if len(known) < len(bases) or mean is None:
        return None
    if rolled.judge == "mean":
        return mean, sum(known) / len(known)
    sign = 1 if HIGHER_IS_BETTER[metric] else -1
    own = [origin.metrics[metric] for origin in rolled.origins]
    ahead = [sign * (one.value - base) for one, base in zip(own, known, strict=True)]
    place = ahead.index(min(ahead))
    where = _at_the_worst(rolled.origins, place)
    return HeldValue(own[place].value, own[place], where), known[place]


def _own(found: Interval | None, where: str = "") -> HeldValue | None:
    if found is None or not isfinite(found.value):
        return None
    return HeldValue(found.value, found, where)


def _in_the_mean(values: Sequence[float]) -> str:
    return f" in the mean of {len(values)} origins ({min(values):.4f} to {max(values):.4f})"


def _at_the_worst(origins: Sequence[OriginReport], place: int) -> str:
    return f" at the worst of {len(origins)} origins ({_span(origins[place].holdout)})"


def _span(ends: tuple[str, str]) -> str:
    return " to ".join(dict.fromkeys(ends))
