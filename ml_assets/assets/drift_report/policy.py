"""Whether drift asks for a training now: a cooldown that loses no alarm, and a daily budget. Pure.

An alarm stands in the report until another model is released: what waits is asked for later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ml_assets.assets.drift_report.findings import DriftReport
from ml_assets.assets.drift_report.verdict import said
from ml_assets.spec.automation import duration_text
from ml_assets.spec.drift import RetrainSpec

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Retrain:
    """Train now, for this reason."""

    reason: str


@dataclass(frozen=True)
class Wait:
    """Do not train now, for this reason."""

    reason: str


def decide(
    report: DriftReport | None,
    release: str | None,
    spec: RetrainSpec,
    begun: Sequence[datetime],
    now: datetime,
) -> Retrain | Wait:
    """What the newest report asks for.

    Args:
        release: digest of the model that is released now.
        begun: when the trainings of the last day (and of the cooldown) began that drift asked for.
    """
    if report is None:
        return Wait("no period has been judged yet")
    if report.model != release:
        return Wait(
            f"the last report is about model {report.model[:12]}, which is not the release any more"
        )
    alarm = report.alarm
    if alarm is None:
        return Wait(said(report))
    if not set(alarm.kinds) & set(spec.on):
        kinds = ", ".join(alarm.kinds)
        return Wait(f"an alarm in {kinds} asks for no training ({alarm.reason}): mend the source")
    kept = f"the alarm of {alarm.period} is kept ({alarm.reason})"
    ends = max(begun) + spec.cooldown if begun else now
    if now < ends:
        return Wait(
            f"{kept}: drift asked for a training at {max(begun):%Y-%m-%d %H:%M} UTC, and the"
            f" cooldown of {duration_text(spec.cooldown)} ends at {ends:%Y-%m-%d %H:%M} UTC"
        )
    today = [at for at in begun if at > now - DAY]
    if len(today) >= spec.runs_per_day:
        again = min(today) + DAY
        return Wait(
            f"{kept}: drift may ask for {spec.runs_per_day} in a day, and has; again at"
            f" {again:%Y-%m-%d %H:%M} UTC"
        )
    return Retrain(f"drift in {', '.join(alarm.kinds)} since {alarm.period}: {alarm.reason}")
