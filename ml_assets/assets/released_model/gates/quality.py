"""Gates on the candidate's own metrics: floors, ceilings, baselines, and too good to be true."""

from ml_assets.assets.released_model.gates.origins import (
    HeldValue,
    held_pair,
    held_value,
    missing_origins,
)
from ml_assets.assets.released_model.gates.result import absent, metric_of, refused, result
from ml_assets.spec.gates import HIGHER_IS_BETTER, BeatsBaseline, Bound, LeakAlarm
from ml_assets.spec.records import EvaluationReport, GateResult


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
        reason = f"{gate.metric} is {value:.4f}, on the believable side of {gate.bound:.4f}"
    else:
        reason = (
            f"{gate.metric} is {value:.4f}, past {gate.bound:.4f}: too good to be true."
            " Look for a feature that was not known when the decision was made"
        )
    return result(gate.name, fine, value, gate.bound, reason, seen_in)
