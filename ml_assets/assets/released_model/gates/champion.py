"""The gate against the champion, which decides by the worse end of the difference's interval."""

from ml_assets.assets.released_model.gates.result import finite, refused, result
from ml_assets.errors import counted
from ml_assets.spec.gates import HIGHER_IS_BETTER, AgainstChampion, Slices
from ml_assets.spec.records import ChampionComparison, EvaluationReport, GateResult, Interval

NO_CHAMPION = "no champion yet"
_DETECTABLE = 1.43
"""Smallest difference that is shown four times out of five, over half the width of the interval:
(1.96 + 0.84) / 1.96, of a normal variable."""


def champion(gate: AgainstChampion, report: EvaluationReport, now: str | None) -> GateResult:
    """Hold a model to its difference from the champion, if the report is about that of now.

    Args:
        now: digest of the champion, as the ledger has it; None: the report's word is taken.
    """
    limit = _limit(gate)
    seen = without_comparison(gate, report, now, limit)
    if isinstance(seen, GateResult):
        return seen
    if gate.seeds and (seen.seeds is None or len(seen.seeds.seeds) < gate.seeds):
        return refused(
            gate.name, limit, f"the spread over {counted(gate.seeds, 'seed')} was not measured"
        )
    return _against(gate, seen)


def while_recalled(gate: AgainstChampion | Slices, model: str) -> GateResult:
    """Refuse while the champion is recalled: a person answers for the model, or it goes."""
    return refused(
        gate.name,
        gate.margin,
        f"the champion {model[:12]} is recalled, so no model is compared with it. Roll back to the"
        " model before it (ml-assets release rollback), or take responsibility for this one"
        " (ml-assets release override)",
    )


def without_comparison(
    gate: AgainstChampion | Slices, report: EvaluationReport, now: str | None, limit: float | None
) -> GateResult | ChampionComparison:
    """Return what a gate says where there is nothing to compare with; else the comparison."""
    seen = report.champion
    if now is not None and now == report.model:
        return result(gate.name, True, None, limit, "this model is the champion itself")
    if now is not None and (seen is None or seen.champion != now):
        against = "no champion" if seen is None else f"model {seen.champion[:12]}"
        reason = (
            f"the report compares with {against}, but the champion is {now[:12]}:"
            " make the evaluation report again"
        )
        return result(gate.name, False, None, limit, reason)
    if seen is None:
        return result(gate.name, True, None, limit, NO_CHAMPION)
    if not seen.comparable:
        accepted = gate.if_not_comparable == "accept"
        rule = (
            f"Gate {gate.name!r} accepts that"
            if accepted
            else f"To release without a comparison, set if_not_comparable: accept in gate"
            f" {gate.name!r} of defs.yaml for this release, or take responsibility for the model"
            " (ml-assets release override)"
        )
        why = seen.reason or "no reason given"
        reason = f"champion {seen.champion[:12]} cannot be compared: {why}. {rule}"
        return result(gate.name, accepted, None, limit, reason)
    return seen


def _against(gate: AgainstChampion, seen: ChampionComparison) -> GateResult:
    what, higher, limit = gate.metric or seen.loss, _higher_is_better(gate), _limit(gate)
    name, gap = seen.champion[:12], _gap(gate, seen)
    if gap is None or not finite(gap):
        share = "relative " if gate.relative else ""
        why = f"the report has no {share}{what} difference against champion {name}"
        return refused(gate.name, limit, why)
    end = gap.low if higher else gap.high
    shown = end > limit if higher else end < limit
    place = ("begins", "above") if higher else ("ends", "below")
    reason = (
        f"{what} minus that of champion {name} is {_signed(gap.value, gate)}"
        f"{' of it' if gate.relative else ''}, its 95% interval {place[0]} at {_signed(end, gate)},"
        f" {'' if shown else 'not '}{place[1]} {_signed(limit, gate)}:"
        f" {_concluded(gate, gap, shown)}"
    )
    worth, said = _worth(gate, gap, shown)
    return result(gate.name, shown and worth, end, limit, f"{reason}{said}", gap)


def _concluded(gate: AgainstChampion, gap: Interval, shown: bool) -> str:
    """What the whole interval says: the claim, its opposite, or neither of them."""
    higher, claim = _higher_is_better(gate), f"the new model is {_claim(gate)}"
    if shown:
        return claim
    best, limit = (gap.high if higher else gap.low), _limit(gate)
    if not (best < limit if higher else best > limit):
        return f"could not show that {claim}"
    if best > 0 if higher else best < 0:
        return f"the new model is not {_claim(gate)}"
    inferior = gate.rule == "non_inferior" and gate.margin
    by = f" by more than {_size(gate.margin, gate)}" if inferior else ""
    return f"the new model is worse than the champion{by}"


def _claim(gate: AgainstChampion) -> str:
    size = _size(gate.margin, gate)
    if gate.rule == "superior":
        return f"better than the champion{f' by {size}' if gate.margin else ''}"
    return f"within {size} of the champion" if gate.margin else "no worse than the champion"


def _worth(gate: AgainstChampion, gap: Interval, shown: bool) -> tuple[bool, str]:
    """Whether the improvement may be the declared one, and what to add to the sentence."""
    if gate.min_effect is None:
        return True, ""
    effect = _size(gate.min_effect, gate)
    best = gap.high if _higher_is_better(gate) else -gap.low
    if not shown:
        detectable = _DETECTABLE * (gap.high - gap.low) / 2
        if detectable <= gate.min_effect:
            return False, ""
        needed = f"{_size(float(f'{detectable:.2g}'), gate)}"
        return False, f" (these rows show {needed} four times out of five, {effect} less often)"
    if best < gate.min_effect:
        return False, f", but by less than the {effect} that is worth a release"
    return True, f", and the {effect} that is worth a release is within the interval"


def _higher_is_better(gate: AgainstChampion) -> bool:
    """A loss is better where it is lower."""
    return gate.metric is not None and HIGHER_IS_BETTER[gate.metric]


def _limit(gate: AgainstChampion) -> float:
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
