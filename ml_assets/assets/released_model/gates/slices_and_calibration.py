"""Gates over several estimates at once: slices, gaps between groups, calibration, robustness.

All of a gate's intervals hold together (Bonferroni); the worst end of them decides.
"""

from collections.abc import Callable

from ml_assets.assets.released_model.gates.champion import without_comparison
from ml_assets.assets.released_model.gates.result import finite, refused, result
from ml_assets.errors import counted, quoted
from ml_assets.spec.gates import Calibrated, Gap, Robustness, Slices
from ml_assets.spec.records import Estimate, EvaluationReport, GateResult


def slices(gate: Slices, report: EvaluationReport, champion: str | None) -> GateResult:
    """Every slice against the champion's loss there, or against a floor or ceiling."""
    if gate.margin is not None:
        seen = without_comparison(gate, report, champion, gate.margin)
        if isinstance(seen, GateResult):
            return seen
        what = f"{seen.loss} minus that of champion {seen.champion[:12]}"
        return _worst(gate.name, what, report, gate.margin, strict=True)
    if gate.at_least is not None:
        return _worst(gate.name, str(gate.metric), report, gate.at_least, higher=True)
    if gate.at_most is not None:
        return _worst(gate.name, str(gate.metric), report, gate.at_most)
    return refused(gate.name, None, "the gate declares no bound")


def gap(gate: Gap, report: EvaluationReport) -> GateResult:
    """The largest difference between two groups."""
    return _worst(gate.name, f"difference in {gate.metric or 'mean loss'}", report, gate.at_most)


def robustness(gate: Robustness, report: EvaluationReport) -> GateResult:
    """The largest rise of the loss."""
    return _worst(gate.name, "rise of the mean loss", report, gate.at_most, named=str)


_MEASURES = {
    "ece": ("expected calibration error", 0.0),
    "slope": ("calibration slope", 1.0),
    "intercept": ("calibration intercept", 0.0),
}
"""What a measure is called, and what it is of a calibrated model."""


def calibration(gate: Calibrated, report: EvaluationReport) -> GateResult:
    """Return how far the measure may be from that of a calibrated model."""
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
