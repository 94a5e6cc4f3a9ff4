"""Turns findings into a verdict: k of the last n periods, in words.

An alarm stands in the report until another model is released.
"""

from collections.abc import Mapping, Sequence
from typing import get_args

from ml_assets.assets.drift_report.findings import (
    Alarm,
    Cause,
    DriftReport,
    Finding,
    JudgedPeriod,
    KindVerdict,
    Measure,
    PastPeriod,
    Statistic,
)
from ml_assets.errors import counted
from ml_assets.spec.drift import DriftKind, DriftSpec, in_order

KINDS: tuple[DriftKind, ...] = get_args(DriftKind)
HISTORY = 104
"""Most periods that a report remembers."""
TITLES: dict[DriftKind, str] = {
    "features": "Distribution of the features",
    "nulls": "Null rates",
    "categories": "New categories",
    "domain": "Domain classifier",
    "predictions": "Predictions",
    "labels": "Labels",
    "performance": "Performance",
}
STATISTICS: dict[Statistic, str] = {
    "psi": "PSI",
    "ks": "Kolmogorov-Smirnov distance",
    "js": "Jensen-Shannon distance",
    "null_share": "null rate",
    "new_share": "share of new categories",
    "auc": "AUC of new against training rows",
    "loss_rise": "rise of the mean loss",
}
_NOTHING = "there is nothing of this kind to judge"
_SHARES: tuple[Statistic, ...] = ("null_share", "new_share", "loss_rise")


def conclude(
    windows: Sequence[JudgedPeriod], spec: DriftSpec, waiting: dict[DriftKind, str]
) -> tuple[KindVerdict, ...]:
    """Return what the windows say of each kind.

    Args:
        windows: oldest first; a kind is judged by the newest ones that have it.
        waiting: kind -> why no window has it.
    """
    return tuple(_outcome(kind, windows, spec, waiting.get(kind, "")) for kind in KINDS)


def raise_alarm(outcomes: Sequence[KindVerdict], newest: str, before: Alarm | None) -> Alarm | None:
    """The alarm that stands now: one that was raised stays until another model is released.

    Args:
        before: of the last report on the same release.
    """
    kinds: tuple[DriftKind, ...] = tuple(one.kind for one in outcomes if one.alarm)
    if not kinds:
        return before
    reason = "; ".join(one.reason for one in outcomes if one.alarm)
    if before is None:
        return Alarm(period=newest, kinds=kinds, reason=reason)
    together: tuple[DriftKind, ...] = tuple(k for k in KINDS if k in kinds or k in before.kinds)
    return Alarm(period=before.period, kinds=together, reason=reason)


def remember(
    before: Sequence[PastPeriod], windows: Sequence[JudgedPeriod], model: str
) -> tuple[PastPeriod, ...]:
    """The history with these windows in it; a period judged again takes its old place."""
    now = [PastPeriod(period=w.period, model=model, ratios=_ratios(w)) for w in windows]
    again = {one.period for one in now}
    kept = [one for one in before if one.period not in again]
    by_period = {one.period: one for one in [*kept, *now]}
    return tuple(by_period[period] for period in in_order([*by_period])[-HISTORY:])


def summary(report: DriftReport) -> str:
    """The report in a sentence."""
    drifting = [one.kind for one in report.outcomes if one.alarm]
    span = report.newest.period
    if report.alarm and not drifting:
        return (
            f"{span}: no drift now; the alarm of {report.alarm.period} remains until another "
            f"model is released: {report.alarm.reason}"
        )
    if report.alarm:
        return f"{span}: drift in {', '.join(drifting)}. {report.alarm.reason}"
    unjudged = not_judged(report)
    fine = [one.kind for one in report.outcomes if one.value is not None]
    kinds = ", ".join(kind for group in unjudged.values() for kind in group)
    if len(kinds.split()) > len(fine):
        rest = f"; only {', '.join(fine)} could be, within bounds" if fine else ""
        return f"{span}: could not judge {kinds}{rest}"
    said = f"{span}: as the release was trained on, within its bounds"
    silent = [one.kind for one in report.outcomes if one.cannot_alarm]
    said += f", but these cannot alarm: {', '.join(silent)}" if silent else ""
    return f"{said}; could not judge {kinds}" if kinds else said


def not_judged(report: DriftReport) -> dict[str, list[DriftKind]]:
    """Return why something could not be judged -> the kinds for which that is so."""
    found: dict[str, list[DriftKind]] = {}
    for one in report.outcomes:
        if one.value is None and one.reason != _NOTHING:
            found.setdefault(one.reason, []).append(one.kind)
    return found


def measured(measure: Measure) -> str:
    """``PSI 0.42, bound 0.1``; against the same season, too, where there is one."""
    name = STATISTICS[measure.statistic]
    words = f"{name} {_number(measure, measure.value)}, bound {_number(measure, measure.bound)}"
    if measure.seasonal is None:
        return words
    value, bound = (_number(measure, number) for number in measure.seasonal)
    return f"{words} (against the same season {value}, bound {bound})"


def _number(measure: Measure, value: float) -> str:
    share = measure.statistic in _SHARES
    shown = 100 * value if share else value
    return f"{shown:{',.0f' if abs(shown) >= 100 else '.3g'}}{' %' if share else ''}"


def _outcome(
    kind: DriftKind, windows: Sequence[JudgedPeriod], spec: DriftSpec, why: str
) -> KindVerdict:
    judged = [(w, _of(w, kind)) for w in windows]
    judged = [(w, findings) for w, findings in judged if findings][-spec.windows :]
    if not judged:
        return KindVerdict(
            kind=kind,
            alarm=False,
            value=None,
            bound=None,
            column="",
            windows=(),
            reason=why or _NOTHING,
        )
    by_column: dict[str, list[tuple[JudgedPeriod, Finding]]] = {}
    for window, findings in judged:
        for finding in findings:
            by_column.setdefault(finding.column, []).append((window, finding))
    worst = max(by_column, key=lambda name: _rank(by_column[name]))
    furthest = max((f for _, f in by_column[worst]), key=lambda finding: finding.worst.ratio)
    shown = furthest.worst
    drifted = tuple(w.period for w, finding in by_column[worst] if finding.drifted)
    others = sum(_times(found) >= spec.alarm_at for found in by_column.values()) - 1
    alarm = len(drifted) >= spec.alarm_at
    reason = _reason(furthest, drifted, len(judged), others if alarm else 0, spec)
    blind = [name for name, found in by_column.items() if all(f.is_blind for _, f in found)]
    if blind:
        reason += f". {_blind(kind, by_column, blind)}"
    return KindVerdict(
        kind=kind,
        alarm=alarm,
        value=shown.value,
        bound=shown.bound,
        column=worst,
        windows=drifted,
        cannot_alarm=len(blind) == len(by_column),
        reason=reason,
    )


def _blind(
    kind: DriftKind,
    found: Mapping[str, Sequence[tuple[JudgedPeriod, Finding]]],
    blind: Sequence[str],
) -> str:
    """Which columns cannot alarm and why, in words."""
    first = blind[0]
    worst = max((one for _, one in found[first]), key=lambda one: one.worst.ratio).worst
    bound = f"a {STATISTICS[worst.statistic]} of {_number(worst, worst.bound)}"
    what = f"{first} cannot alarm"
    if len(found) > 1:
        what = f"{len(blind)} of {counted(len(found), 'column')} cannot alarm, {first} for one"
    why = _BECAUSE[worst.because]
    if worst.because == "periods":
        why += _HELPS[kind]
    return f"{what}: hardly anything exceeds {bound}, {why}"


_BECAUSE: dict[Cause, str] = {
    "effect": "because drift.bounds asks for that much",
    "chance": "because chance alone goes that far in so few rows. Judge longer partitions",
    "periods": "because the periods that it is compared with differ that much without drift. ",
}
"""What sets a bound that hardly anything exceeds."""
_OF_FEATURES = "Give the model its difference from the usual value, or name it in drift.leave_out"
_HELD_OUT = "More periods measure that better: raise split.holdout"
_HELPS: dict[DriftKind, str] = {
    **dict.fromkeys(("features", "nulls", "categories", "domain"), _OF_FEATURES),
    "labels": "More periods measure that better: raise split.train",
    **dict.fromkeys(("predictions", "performance"), _HELD_OUT),
}
"""What helps where periods differ."""


def _reason(
    furthest: Finding,
    drifted: Sequence[str],
    judged: int,
    others: int,
    spec: DriftSpec,
) -> str:
    words = f"{furthest.column}: {measured(furthest.worst)}"
    words += f"; {furthest.moved}" if furthest.moved else ""
    if not drifted:
        return f"{words}; the furthest of {judged} {'period' if judged == 1 else 'periods'}"
    times = f"{len(drifted)} of the last {counted(judged, 'period')} drifted ({', '.join(drifted)})"
    if len(drifted) < spec.alarm_at:
        return f"{words}; {times}, and an alarm needs {spec.alarm_at}"
    more = f", and {others} more {'column' if others == 1 else 'columns'}" if others else ""
    return f"{words}; {times}{more}"


def _of(window: JudgedPeriod, kind: DriftKind) -> list[Finding]:
    return [finding for finding in window.findings if finding.kind == kind]


def _times(found: Sequence[tuple[JudgedPeriod, Finding]]) -> int:
    return sum(finding.drifted for _, finding in found)


def _rank(found: Sequence[tuple[JudgedPeriod, Finding]]) -> tuple[int, float]:
    return _times(found), max(finding.worst.ratio for _, finding in found)


def _ratios(window: JudgedPeriod) -> dict[DriftKind, float]:
    found: dict[DriftKind, float] = {}
    for one in window.findings:
        found[one.kind] = max(found.get(one.kind, 0.0), one.worst.ratio)
    return found
