"""Gates on the candidate's own metrics: floors, ceilings, baselines, and too good to be true."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from ml_assets.assets.released_model.gates.result import absent, metric_of, refused, result
from ml_assets.errors import counted
from ml_assets.spec.gates import HIGHER_IS_BETTER, BeatsBaseline, Bound, LeakAlarm, MetricName
from ml_assets.spec.records import EvaluationReport, GateResult, Interval, OriginReport


@dataclass(frozen=True)
class HeldValue:
    """A value as a gate takes it."""

    value: float
    interval: Interval | None
    where: str = ""
    """Which origins it is of, as a sentence goes on; empty: the holdout."""


def missing_origins(report: EvaluationReport) -> str:
    """Return why there are fewer origins than were asked for; empty where all are there."""
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
    return (
        f" in the mean of {counted(len(values), 'origin')} ({min(values):.4f} to {max(values):.4f})"
    )


def _at_the_worst(origins: Sequence[OriginReport], place: int) -> str:
    return f" at the worst of {counted(len(origins), 'origin')} ({_span(origins[place].holdout)})"


def _span(ends: tuple[str, str]) -> str:
    return " to ".join(dict.fromkeys(ends))


def bound(gate: Bound, report: EvaluationReport) -> GateResult:
    """The value itself is held to the bounds; its interval is shown.

    Of several origins it is their mean, or for each bound the origin that is worst for it.
    """
    if too_few := missing_origins(report):
        return refused(gate.name, gate.at_least, too_few)
    lowest, highest = (held_value(report, gate.metric, lowest=side) for side in (True, False))
    if lowest is None or highest is None:
        return absent(gate.name, gate.metric, gate.at_least)
    if gate.at_least is None and gate.at_most is None:
        why = "the gate declares no bound: refused"
        return result(gate.name, False, lowest.value, None, why, lowest.interval)
    said: list[str] = []
    if gate.at_least is not None:
        said.append(f"at least {gate.at_least:.4f}")
        if not lowest.value >= gate.at_least:
            why = f"{_is(gate.metric, lowest)}, not {said[-1]}"
            return result(gate.name, False, lowest.value, gate.at_least, why, lowest.interval)
    if gate.at_most is not None:
        said.append(f"at most {gate.at_most:.4f}")
        if not highest.value <= gate.at_most:
            why = f"{_is(gate.metric, highest)}, not {said[-1]}"
            return result(gate.name, False, highest.value, gate.at_most, why, highest.interval)
    held = lowest if gate.at_least is not None else highest
    limit = gate.at_least if gate.at_least is not None else gate.at_most
    why = f"{_is(gate.metric, held)}, {' and '.join(said)} as asked"
    return result(gate.name, True, held.value, limit, why, held.interval)


def baseline(gate: BeatsBaseline, report: EvaluationReport) -> GateResult:
    """The value itself is held to the baseline's, moved by the margin.

    Of several origins both are means, or of the origin where the baseline is ahead the most.
    """
    if too_few := missing_origins(report):
        return refused(gate.name, None, too_few)
    held = held_value(report, gate.metric, lowest=HIGHER_IS_BETTER[gate.metric])
    if held is None:
        return absent(gate.name, gate.metric, None)
    against = held_pair(report, gate.metric, gate.baseline)
    if against is None:
        reason = f"the report has no {gate.metric} of baseline {gate.baseline}: refused"
        return result(gate.name, False, held.value, None, reason, held.interval)
    held, base = against
    value, seen_in = held.value, held.interval
    higher = HIGHER_IS_BETTER[gate.metric]
    limit = base + gate.margin if higher else base - gate.margin
    fine = value > limit if higher else value < limit
    side = "above" if higher else "below"
    margin = "" if gate.margin == 0 else f" with a margin of {gate.margin:g}"
    of = f"{base:.4f} of {gate.baseline}{margin}"
    reason = f"{_is(gate.metric, held)}, {side if fine else f'not {side}'} the {of}"
    if gate.baseline in report.sources:
        reason += f", declared: {report.sources[gate.baseline]}"
    return result(gate.name, fine, value, limit, reason, seen_in)


def _is(metric: str, held: HeldValue) -> str:
    return f"{metric} is {held.value:.4f}{held.where}"


def leak_alarm(gate: LeakAlarm, report: EvaluationReport) -> GateResult:
    """A value past what is believable is refused."""
    value, seen_in = metric_of(report, gate.metric), report.metrics.get(gate.metric)
    if value is None:
        return absent(gate.name, gate.metric, gate.bound)
    fine = value < gate.bound if HIGHER_IS_BETTER[gate.metric] else value > gate.bound
    if fine:
        reason = f"{gate.metric} is {value:.4f}, within the believable bound {gate.bound:.4f}"
    else:
        reason = (
            f"{gate.metric} is {value:.4f}, past {gate.bound:.4f}: too good to be true."
            " Look for a feature that was not known when the decision was made"
        )
    return result(gate.name, fine, value, gate.bound, reason, seen_in)
