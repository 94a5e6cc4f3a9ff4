"""Decides from the served rows whether a model in canary lost to the champion, and whether the
release does worse than at its evaluation."""

from collections.abc import Sequence
from math import sqrt

from ml_assets.assets.drift_report.findings import Alarm
from ml_assets.assets.drift_report.period_comparison import judge_loss
from ml_assets.assets.evaluation_report.drift_baseline import PeriodLoss, read_baseline
from ml_assets.errors import counted
from ml_assets.extras.serving.known_records import known_records
from ml_assets.extras.serving.online_evaluation.loss import OnlineReport, ServedLoss, difference
from ml_assets.graph.code_version import code_version_of
from ml_assets.records.ledger.origin import find_origin
from ml_assets.records.recalls import quarantine
from ml_assets.spec.drift import DriftSpec
from ml_assets.spec.gates import Target
from ml_assets.spec.records import REPORT_FILE, GateResult, Interval
from ml_assets.spec.stages import ONLINE_STAGE
from ml_assets.store.pipeline_context import PipelineState
from ml_assets.store.snapshots import MAIN

GATE = "online_evaluation"
_WIDE = 1.96
"""Deviations of a 95 % interval, where several periods are put together."""


def online_reports(state: PipelineState) -> list[OnlineReport]:
    """Return what was found of each period by the code of now, oldest first; periods whose
    features are recalled say nothing."""
    address, features = state.address(ONLINE_STAGE), state.address("feature_set").key
    code = code_version_of(state.pipeline, ONLINE_STAGE)
    held = quarantine(state.store, state.store.resolve(MAIN))
    found = [
        OnlineReport.model_validate_json(
            state.read_bytes(address.at(record.partition).file(REPORT_FILE))
        )
        for record in known_records(state, address)
        if record.partition is not None
        and record.code_version == code
        and not any(
            held.of(i.key, i.partition, i.version) for i in record.inputs if i.key == features
        )
    ]
    return [one for one in found if one.models]


def canary_verdict(reports: Sequence[OnlineReport], model: str, champion: str | None) -> GateResult:
    """Return whether a model lost on the rows that it was served in canary; labels that are not
    there yet refuse nothing."""
    seen = [pair for one in reports if (pair := _pair(one, model, champion)) is not None]
    if not seen:
        said = (
            "it and the champion have served no labelled rows side by side yet, so only the"
            " comparison on newer partitions decides"
        )
        return GateResult(name=GATE, passed=True, value=None, bound=0.0, reason=said)
    found = _together([difference(canary.told, rival.told) for canary, rival in seen])
    lost = found.low > 0
    units = sum(canary.units for canary, _ in seen)
    reason = (
        f"on {counted(units, 'labelled row')} that it was served, its {reports[0].loss} minus the"
        f" champion's is {found.value:.4f} ({found.low:.4f} to {found.high:.4f}): "
        + ("worse than chance explains" if lost else "not worse beyond chance")
    )
    return GateResult(
        name=GATE, passed=not lost, value=found.low, bound=0.0, reason=reason, interval=found
    )


def served_alarm(state: PipelineState, release: str) -> Alarm | None:
    """The alarm of a release whose served loss rose in so many of the newest periods as the spec's
    drift asks for; None where it did not, or nobody can tell."""
    drift, origin = state.spec.drift, find_origin(state.store, state.name, release)
    baseline = read_baseline(state.store, origin) if origin else None
    if drift is None or baseline is None:
        return None
    return loss_alarm(online_reports(state), release, baseline.losses, drift)


def loss_alarm(
    reports: Sequence[OnlineReport], release: str, held: Sequence[PeriodLoss], drift: DriftSpec
) -> Alarm | None:
    """See ``served_alarm``.

    Args:
        reports: oldest first; those of periods in which it was not served say nothing.
        held: its losses on the holdout's periods.
    """
    risen: list[str] = []
    served = [(one, did) for one in reports if (did := _did(one, "production", release))]
    for one, did in served[-drift.windows :]:
        found = judge_loss(held, did.told, drift.false_alarms, drift.bounds.loss_rise)
        if found is not None and found.worst.ratio > 1:
            risen.append(f"{one.period}: {found.worst.value:+.0%}, bound {found.worst.bound:.0%}")
    if len(risen) < drift.alarm_at:
        return None
    newest, _ = served[-1]
    said = f"the {newest.loss} of what was served rose ({'; '.join(risen)})"
    return Alarm(period=newest.period or "", kinds=("performance",), reason=said)


def _pair(
    report: OnlineReport, model: str, champion: str | None
) -> tuple[ServedLoss, ServedLoss] | None:
    """The canary and the champion as they did in a period; None where it did not serve both."""
    mine, rival = _did(report, "canary", model), _did(report, "production", champion)
    return (mine, rival) if mine and rival else None


def _did(report: OnlineReport, stage: Target, model: str | None) -> ServedLoss | None:
    """How a model did in a period, however many others served in it; of no name: the one that
    answered most."""
    of_stage = (one for one in report.models if one.stage == stage)
    return next((one for one in of_stage if model in (None, one.model)), None)


def _together(differences: Sequence[Interval]) -> Interval:
    """The mean of independent differences, each by how surely it is known."""
    weights = [(2 * _WIDE / max(one.high - one.low, 1e-12)) ** 2 for one in differences]
    pairs = zip(weights, differences, strict=True)
    value = sum(weight * one.value for weight, one in pairs) / sum(weights)
    wide = _WIDE / sqrt(sum(weights))
    return Interval(value=value, low=value - wide, high=value + wide)
