"""Gates on how well the candidate predicts.

Some hold its metrics: to floors and ceilings, to baselines, and to what is too good to be true.
Others hold several estimates at once: slices, gaps between groups, calibration, robustness. All of
such a gate's intervals hold together (Bonferroni); the worst end of them decides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

from ml_assets.assets.released_model.gates.champion import without_comparison
from ml_assets.assets.released_model.gates.result import absent, finite, metric_of, refused, result
from ml_assets.errors import counted, quoted
from ml_assets.spec.gates import (
    HIGHER_IS_BETTER,
    BeatsBaseline,
    Bound,
    Calibrated,
    Gap,
    LeakAlarm,
    MetricName,
    Robustness,
    Slices,
)
from ml_assets.spec.records import Estimate, EvaluationReport, GateResult, Interval, OriginReport

_MEASURES = {
    "ece": ("expected calibration error", 0.0),
    "slope": ("calibration slope", 1.0),
    "intercept": ("calibration intercept", 0.0),
}
"""What a measure is called, and what it is of a calibrated model."""


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
            " Look for a feature that was not known when the decision was made, or for several"
            " that make up the label. If the label is truly so easy to tell, move the gate's bound"
            " in defs.yaml, or remove the gate"
        )
    return result(gate.name, fine, value, gate.bound, reason, seen_in)


def slices(gate: Slices, report: EvaluationReport, champion: str | None) -> GateResult:
    """Every slice against the champion's loss there, or against a floor or ceiling."""
    if gate.margin is not None:
        seen = without_comparison(gate, report, champion, gate.margin)
        if isinstance(seen, GateResult):
            return seen
        what = f"{seen.loss} minus that of champion {seen.champion[:12]}"
        held = _worst(gate.name, what, report, gate.margin, strict=True)
    elif gate.at_least is not None:
        held = _worst(gate.name, str(gate.metric), report, gate.at_least, higher=True)
    elif gate.at_most is not None:
        held = _worst(gate.name, str(gate.metric), report, gate.at_most)
    else:
        return refused(gate.name, None, "the gate declares no bound")
    return _of_every_column(gate, report, held) if held.passed else held


def _of_every_column(gate: Slices, report: EvaluationReport, held: GateResult) -> GateResult:
    """A column of small slices alone does not pass by the side of another one."""
    judged = dict.fromkeys(gate.columns, 0)
    for one in report.estimates[gate.name]:
        named = [column for column in gate.columns if one.about.startswith(f"{column} ")]
        if named:
            judged[max(named, key=len)] += one.rows
    for column, rows in judged.items():
        if not rows:
            why = (
                f"no value of {column} has {counted(gate.min_rows, 'row')}, so nothing of this"
                " column is judged: refused. Give the gate a smaller min_rows, or take the column"
                " out of it"
            )
            return result(gate.name, False, None, held.bound, why)
    small = [
        f"{counted(report.rows - rows, 'row')} by {column}"
        for column, rows in judged.items()
        if rows < report.rows
    ]
    if not small:
        return held
    reason = f"{held.reason}; in slices too small to judge: {', '.join(small)}"
    return held.model_copy(update={"reason": reason})


def gap(gate: Gap, report: EvaluationReport) -> GateResult:
    """The largest difference between two groups."""
    return _worst(gate.name, f"difference in {gate.metric or 'mean loss'}", report, gate.at_most)


def robustness(gate: Robustness, report: EvaluationReport) -> GateResult:
    """The largest rise of the loss."""
    return _worst(gate.name, "rise of the mean loss", report, gate.at_most, named=str)


def calibration(gate: Calibrated, report: EvaluationReport) -> GateResult:
    """Hold the measure's distance from that of a calibrated model to the bound."""
    what, ideal = _MEASURES[gate.measure]
    found = report.estimates.get(gate.name, ())
    seen = found[0].interval if found else None
    if seen is None or not finite(seen):
        return refused(gate.name, gate.at_most, f"the report has no {what} of this model")
    off = max(abs(seen.low - ideal), abs(seen.high - ideal))
    fine = off <= gate.at_most
    span = f"{what} is {seen.value:.4f} (95% interval {seen.low:.4f} to {seen.high:.4f})"
    side = "within" if fine else "not shown to be within"
    of = f" of {ideal:g}" if ideal else ""
    return result(gate.name, fine, off, gate.at_most, f"{span}, {side} {gate.at_most:g}{of}", seen)


def _worst(
    name: str,
    what: str,
    report: EvaluationReport,
    limit: float,
    *,
    higher: bool = False,
    strict: bool = False,
    named: Callable[[str], str] = quoted,
) -> GateResult:
    """The estimate whose interval ends worst is held to the limit.

    Args:
        named: how a sentence names what an estimate is about; values of rows are quoted.
        higher: values have to be above the limit.
        strict: a value on the limit fails.
    """
    found = report.estimates.get(name, ())
    if not found:
        return refused(name, limit, "no part of the rows is large enough to judge")
    unknown = [one for one in found if one.interval is None or not finite(one.interval)]
    if unknown:
        about = named(unknown[0].about)
        why = (
            f"the spread of {what} cannot be known for {about} ({counted(unknown[0].rows, 'row')})"
        )
        return refused(name, limit, why)

    def end(one: Estimate) -> float:
        assert one.interval is not None
        return one.interval.low if higher else one.interval.high

    worst = (min if higher else max)(found, key=end)
    value, seen = end(worst), worst.interval
    assert seen is not None
    fine = (value > limit if higher else value < limit) or (value == limit and not strict)
    among = f", the worst of {len(found)}" if len(found) > 1 else ""
    side = f"{'' if fine else 'not '}{'above' if higher else 'below'} {limit:g}"
    reason = (
        f"{what}, {named(worst.about)} ({counted(worst.rows, 'row')}{among}): {seen.value:.4f};"
        f" its interval {'begins' if higher else 'ends'} at {value:.4f}, {side}"
    )
    return result(name, fine, value, limit, reason, seen)
