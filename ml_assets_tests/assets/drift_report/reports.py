"""Reports on drift, made of windows whose verdicts are known."""

from datetime import UTC, datetime

from ml_assets.assets.drift_report.findings import (
    Alarm,
    DriftReport,
    Finding,
    JudgedPeriod,
    Measure,
)
from ml_assets.assets.drift_report.verdict import conclude, raise_alarm
from ml_assets.spec.drift import DriftKind, DriftSpec

MODEL, OTHER = "a" * 64, "b" * 64
NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
SPEC = DriftSpec(windows=3, alarm_at=2)


def window(
    period: str, psi: float = 0.01, kind: DriftKind = "features", **more: float
) -> JudgedPeriod:
    values = {"x": psi, **more}
    findings = [
        Finding(
            kind=kind,
            column=column,
            measures=(Measure(statistic="psi", value=value, bound=0.1),),
        )
        for column, value in values.items()
    ]
    return JudgedPeriod(period=period, rows=1000, findings=tuple(findings))


def report(*windows: JudgedPeriod, alarm: Alarm | None = None, model: str = MODEL) -> DriftReport:
    outcomes = conclude(windows, SPEC, {})
    return DriftReport(
        pipeline="p",
        model=model,
        trained_on=("a", "b"),
        training_rows=1,
        back_tested=8,
        windows=windows,
        outcomes=outcomes,
        notes=(),
        alarm=raise_alarm(outcomes, windows[-1].period, alarm),
        time=NOW,
    )
