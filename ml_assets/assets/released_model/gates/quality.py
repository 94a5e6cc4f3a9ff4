"""Gates on the candidate's own metrics: floors, ceilings, baselines, and too good to be true."""

from math import isfinite

from ml_assets.assets.released_model.gates.result import absent, metric_of, result
from ml_assets.spec.gates import HIGHER_IS_BETTER, BeatsBaseline, Bound, LeakAlarm
from ml_assets.spec.records import EvaluationReport, GateResult


def bound(gate: Bound, report: EvaluationReport) -> GateResult:
    """The value itself is held to the bounds; its interval is shown."""
    value, seen_in = metric_of(report, gate.metric), report.metrics.get(gate.metric)
    if value is None:
        return absent(gate.name, gate.metric, gate.at_least)
    if gate.at_least is None and gate.at_most is None:
        return result(gate.name, False, value, None, "the gate declares no bound: refused", seen_in)
    seen = f"{gate.metric} is {value:.4f}"
    said: list[str] = []
    if gate.at_least is not None:
        said.append(f"at least {gate.at_least:.4f}")
        if not value >= gate.at_least:
            why = f"{seen}, not {said[-1]}"
            return result(gate.name, False, value, gate.at_least, why, seen_in)
    if gate.at_most is not None:
        said.append(f"at most {gate.at_most:.4f}")
        if not value <= gate.at_most:
            why = f"{seen}, not {said[-1]}"
            return result(gate.name, False, value, gate.at_most, why, seen_in)
    limit = gate.at_least if gate.at_least is not None else gate.at_most
    return result(gate.name, True, value, limit, f"{seen}, {' and '.join(said)} as asked", seen_in)


def baseline(gate: BeatsBaseline, report: EvaluationReport) -> GateResult:
    """The value itself is held to the baseline's, moved by the margin."""
    value, seen_in = metric_of(report, gate.metric), report.metrics.get(gate.metric)
    if value is None:
        return absent(gate.name, gate.metric, None)
    base = report.baselines.get(gate.baseline, {}).get(gate.metric)
    if base is None or not isfinite(base):
        reason = f"the report has no {gate.metric} of baseline {gate.baseline}: refused"
        return result(gate.name, False, value, None, reason, seen_in)
    higher = HIGHER_IS_BETTER[gate.metric]
    limit = base + gate.margin if higher else base - gate.margin
    fine = value > limit if higher else value < limit
    side = "above" if higher else "below"
    margin = "" if gate.margin == 0 else f" with a margin of {gate.margin:g}"
    of = f"{base:.4f} of {gate.baseline}{margin}"
    reason = f"{gate.metric} is {value:.4f}, {side if fine else f'not {side}'} the {of}"
    if gate.baseline in report.sources:
        reason += f", declared: {report.sources[gate.baseline]}"
    return result(gate.name, fine, value, limit, reason, seen_in)


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
