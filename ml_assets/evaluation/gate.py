"""Whether a model may be released: a pure function of the policy and the evidence.

It fails closed. What is missing, not finite or not understood fails its gate; no gate is no pass.
"""

from collections.abc import Sequence
from math import isfinite

from ml_assets.errors import counted
from ml_assets.spec.canonical import digest_of
from ml_assets.spec.gates import (
    HIGHER_IS_BETTER,
    AgainstChampion,
    BeatsBaseline,
    Bound,
    GateSpec,
    LeakAlarm,
    MetricName,
    ReleaseSpec,
    Size,
)
from ml_assets.spec.records import (
    ChampionComparison,
    EvaluationReport,
    GateResult,
    Interval,
    Measured,
)

NO_CHAMPION = "no champion yet"


def decide(
    gates: Sequence[GateSpec],
    report: EvaluationReport,
    measured: Measured,
    *,
    champion: str | None = None,
) -> tuple[GateResult, ...]:
    """One result for each gate, in the order of the gates.

    Args:
        champion: digest of the model that holds the stage now, as the ledger has it. Where it is
            given, a report that compares with no model or with another one fails the champion
            gate. Without it the report's word is taken.
    """
    return tuple(_decide(gate, report, measured, champion) for gate in gates)


def passed(results: Sequence[GateResult]) -> bool:
    """True where there are gates and all of them passed."""
    return bool(results) and all(result.passed is True for result in results)


def summary(results: Sequence[GateResult]) -> str:
    """The decision in one line; a refusal names each failed gate and why it failed."""
    if not results:
        return "refused: no gate was evaluated"
    failed = [result for result in results if not result.passed]
    if not failed:
        return f"all {len(results)} gates passed" if len(results) > 1 else "the only gate passed"
    reasons = "; ".join(f"{result.name}: {result.reason}" for result in failed)
    return f"refused by {len(failed)} of {counted(len(results), 'gate')}: {reasons}"


def policy_digest(gates: Sequence[GateSpec], release: ReleaseSpec) -> str:
    """Digest of everything a decision is made by; a decision under another policy is stale."""
    return digest_of(
        {
            "gates": [gate.model_dump(mode="json") for gate in gates],
            "release": release.model_dump(mode="json"),
        }
    )


def _decide(
    gate: GateSpec, report: EvaluationReport, measured: Measured, champion: str | None
) -> GateResult:
    if isinstance(gate, Bound):
        return _bound(gate, report)
    if isinstance(gate, BeatsBaseline):
        return _baseline(gate, report)
    if isinstance(gate, AgainstChampion):
        return _champion(gate, report, champion)
    if isinstance(gate, LeakAlarm):
        return _leak_alarm(gate, report)
    if isinstance(gate, Size):
        megabytes = report.size_bytes / 1e6
        return _at_most(gate.name, "size of the model", megabytes, gate.at_most_mb, "MB")
    if gate.at_most_ms is not None:
        what = "median time for one row"
        return _at_most(gate.name, what, measured.latency_ms, gate.at_most_ms, "ms")
    took = f"{measured.latency_ms:.3g} ms for one row (median); recorded, no bound is declared"
    return _result(gate.name, True, measured.latency_ms, None, took)


def _bound(gate: Bound, report: EvaluationReport) -> GateResult:
    value = _metric(report, gate.metric)
    if value is None:
        return _absent(gate.name, gate.metric, gate.at_least)
    if gate.at_least is None and gate.at_most is None:
        return _result(gate.name, False, value, None, "the gate declares no bound: refused")
    seen = f"{gate.metric} is {value:.4f}"
    said: list[str] = []
    if gate.at_least is not None:
        said.append(f"at least {gate.at_least:.4f}")
        if not value >= gate.at_least:
            return _result(gate.name, False, value, gate.at_least, f"{seen}, not {said[-1]}")
    if gate.at_most is not None:
        said.append(f"at most {gate.at_most:.4f}")
        if not value <= gate.at_most:
            return _result(gate.name, False, value, gate.at_most, f"{seen}, not {said[-1]}")
    limit = gate.at_least if gate.at_least is not None else gate.at_most
    return _result(gate.name, True, value, limit, f"{seen}, {' and '.join(said)} as asked")


def _baseline(gate: BeatsBaseline, report: EvaluationReport) -> GateResult:
    value = _metric(report, gate.metric)
    if value is None:
        return _absent(gate.name, gate.metric, None)
    base = report.baselines.get(gate.baseline, {}).get(gate.metric)
    if base is None or not isfinite(base):
        reason = f"the report has no {gate.metric} of baseline {gate.baseline}: refused"
        return _result(gate.name, False, value, None, reason)
    higher = HIGHER_IS_BETTER[gate.metric]
    limit = base + gate.margin if higher else base - gate.margin
    fine = value > limit if higher else value < limit
    side = "above" if higher else "below"
    by = "" if gate.margin == 0 else f" ({base:.4f} with a margin of {gate.margin:g})"
    reason = (
        f"{gate.metric} is {value:.4f}, {side if fine else f'not {side}'} the {limit:.4f}"
        f" asked for against {gate.baseline}{by}"
    )
    return _result(gate.name, fine, value, limit, reason)


def _champion(gate: AgainstChampion, report: EvaluationReport, now: str | None) -> GateResult:
    limit = _champion_limit(gate)
    seen = report.champion
    if now is not None and now == report.model:
        return _result(gate.name, True, None, limit, "this model is the champion itself")
    if now is not None and (seen is None or seen.champion != now):
        against = "no champion" if seen is None else f"model {seen.champion[:12]}"
        reason = (
            f"the report compares with {against}, but the champion is {now[:12]}:"
            " make the evaluation report again"
        )
        return _result(gate.name, False, None, limit, reason)
    if seen is None:
        return _result(gate.name, True, None, limit, NO_CHAMPION)
    name = seen.champion[:12]
    if not seen.comparable:
        accepted = gate.if_not_comparable == "accept"
        rule = "the policy accepts that" if accepted else "the policy refuses that"
        reason = f"champion {name} cannot be compared: {seen.reason or 'no reason given'}; {rule}"
        return _result(gate.name, accepted, None, limit, reason)
    return _against(gate, seen)


def _against(gate: AgainstChampion, seen: ChampionComparison) -> GateResult:
    """Held to the worse end of the interval of the difference."""
    what, higher, limit = gate.metric or seen.loss, _higher_is_better(gate), _champion_limit(gate)
    name, gap = seen.champion[:12], _gap(gate, seen)
    ends = () if gap is None else (gap.value, gap.low, gap.high)
    if gap is None or not all(isfinite(end) for end in ends):
        share = "relative " if gate.relative else ""
        reason = f"the report has no {share}{what} difference against champion"
        return _result(gate.name, False, None, limit, f"{reason} {name}: refused")
    end = gap.low if higher else gap.high
    fine = end > limit if higher else end < limit
    better = "better" if gate.rule == "superior" else "not worse"
    claim = f"this model is {better} by {_size(gate.margin, gate)}"
    place = ("begins", "above") if higher else ("ends", "below")
    reason = (
        f"{what} minus that of champion {name} is {_signed(gap.value, gate)}"
        f"{' of it' if gate.relative else ''}, its 95% interval {place[0]} at {_signed(end, gate)},"
        f" {'' if fine else 'not '}{place[1]} {_signed(limit, gate)}:"
        f" {claim if fine else f'it is not shown that {claim}'}"
    )
    return _result(gate.name, fine, end, limit, reason)


def _higher_is_better(gate: AgainstChampion) -> bool:
    """A loss is better where it is lower."""
    return gate.metric is not None and HIGHER_IS_BETTER[gate.metric]


def _champion_limit(gate: AgainstChampion) -> float:
    """What the worse end of the interval of (candidate - champion) must be on the good side of."""
    upward = (gate.rule == "superior") == _higher_is_better(gate)
    return gate.margin if upward else -gate.margin


def _gap(gate: AgainstChampion, seen: ChampionComparison) -> Interval | None:
    """The difference that the gate is about, if the report has it."""
    if gate.metric is None:
        return seen.loss_difference
    found = seen.differences.get(gate.metric)
    if found is None:
        return None
    return found.relative if gate.relative else found.absolute


def _signed(value: float, gate: AgainstChampion) -> str:
    return f"{value:+.2%}" if gate.relative else f"{value:+.4f}"


def _size(value: float, gate: AgainstChampion) -> str:
    return f"{value * 100:g}%" if gate.relative else f"{value:g}"


def _leak_alarm(gate: LeakAlarm, report: EvaluationReport) -> GateResult:
    value = _metric(report, gate.metric)
    if value is None:
        return _absent(gate.name, gate.metric, gate.bound)
    fine = value < gate.bound if HIGHER_IS_BETTER[gate.metric] else value > gate.bound
    if fine:
        reason = f"{gate.metric} is {value:.4f}, on the believable side of {gate.bound:.4f}"
    else:
        reason = (
            f"{gate.metric} is {value:.4f}, past {gate.bound:.4f}: too good to be true."
            " Look for a feature that was not known when the decision was made"
        )
    return _result(gate.name, fine, value, gate.bound, reason)


def _at_most(name: str, what: str, value: float, limit: float, unit: str) -> GateResult:
    if not isfinite(value) or value <= 0:
        return _result(name, False, None, limit, f"the {what} was not measured: refused")
    fine = value <= limit
    side = "within" if fine else "above"
    reason = f"{what}: {value:.3g} {unit}, {side} the limit of {limit:g} {unit}"
    return _result(name, fine, value, limit, reason)


def _metric(report: EvaluationReport, name: MetricName) -> float | None:
    """The candidate's value, or None where it is absent or not a number."""
    found = report.metrics.get(name)
    return found.value if found is not None and isfinite(found.value) else None


def _absent(name: str, metric: str, limit: float | None) -> GateResult:
    return _result(name, False, None, limit, f"the report has no {metric} of this model: refused")


def _result(
    name: str, fine: bool, value: float | None, limit: float | None, reason: str
) -> GateResult:
    return GateResult(name=name, passed=fine, value=value, bound=limit, reason=reason)
