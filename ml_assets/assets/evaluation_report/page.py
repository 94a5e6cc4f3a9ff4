"""The data of the evaluation report's page, for its template.

All of it comes from records; equal records give an equal page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import groupby
from types import MappingProxyType

import polars as pl

from ml_assets.assets.evaluation_report.pictures import (
    baseline_bars,
    champion_picture,
    importance_picture,
    lead_metric,
    origin_pictures,
    origins_table,
    slice_picture,
    suspects_table,
)
from ml_assets.assets.evaluation_report.quality_pictures import label_words, quality
from ml_assets.assets.trained_model.pictures import decoded_rows, training_pictures
from ml_assets.errors import counted
from ml_assets.records.ledger.replay import what_now
from ml_assets.records.ledger.stages import champion
from ml_assets.reports.data_pictures import feature_pictures
from ml_assets.reports.decisions import (
    as_judged,
    decisions_picture,
    gates_picture,
    in_percent,
    ledger_table,
)
from ml_assets.reports.page import page
from ml_assets.reports.picture import Table, Tile, Verdict
from ml_assets.reports.tables import changes_table, lost_attempts
from ml_assets.reports.wording import digits, order, title
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import (
    Decision,
    EvaluationReport,
    GateResult,
    InputVersion,
    Interval,
    LedgerEntry,
    Measured,
    ReleaseChanges,
    SliceMetrics,
    StageRecord,
)
from ml_assets.spec.training import Boosted
from ml_assets.spec.training_program import LabelScale, Preprocessing
from ml_assets.spec.training_progress import TrainingStory

LINEAGE_LINES = 600
"""Most input versions listed one by one; an hourly pipeline has thousands."""


@dataclass(frozen=True)
class Background:
    """Holds what led to a report: the training, the data, the decisions and releases before."""

    story: TrainingStory
    preprocessing: Preprocessing | None
    """None: the model could not be brought here, which ``missing`` tells."""
    features: Sequence[StageRecord]
    """Records of feature_set, one of each partition, oldest first."""
    changes: ReleaseChanges | None
    ledger: Sequence[LedgerEntry]
    lineage: Sequence[InputVersion]
    """The exact inputs of the report and the model."""
    override: LedgerEntry | None = None
    """A person's line against the decision that is shown."""
    gates_said: str = ""
    """What the gates come to, in one line."""
    label_scale: LabelScale | None = None
    """What the model learned a number by."""
    suspects: pl.DataFrame | None = None
    """Rows that the model is most wrong about."""
    origin_cost: Mapping[str, float] = field(default_factory=dict)
    """What the trainings for earlier origins took."""
    missing: Sequence[str] = ()
    """What the page lacks, and why, each in a sentence."""


@dataclass(frozen=True)
class Slice:
    """A value of a column; ``bar`` is how long its bar is, empty where it has none."""

    seen: SliceMetrics
    bar: str


@dataclass(frozen=True)
class Input:
    """Versions of one table or model that were read."""

    key: str
    partitions: str
    count: int
    listed: Sequence[InputVersion]
    """As many as there is room for."""
    commits: str


def render(
    report: EvaluationReport,
    measured: Measured,
    gates: Sequence[GateResult],
    decision: Decision | None,
    background: Background,
    spec: PipelineSpec,
    ways: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The page.

    Args:
        gates: what the gates say of this report.
        decision: the one in the ledger, if it was made.
        ways: what a link says -> its address; nothing is loaded from there.
    """
    facts = _facts(report, decision, spec)
    report, suspects = as_judged(report, spec.gates), background.suspects
    return page(
        "report.html",
        spec=spec,
        report=report,
        ways=ways,
        override=_overridden(background.override),
        verdict=_verdict(report, gates, decision, spec, background),
        missing=background.missing,
        tiles=_tiles(report, measured),
        gates=gates,
        in_percent=in_percent(spec.gates),
        gate_pictures=[
            *gates_picture(gates, spec.gates),
            *decisions_picture(background.ledger, spec.gates),
        ],
        changes=changes_table(background.changes),
        metrics=sorted(report.metrics, key=order),
        compared=_compared(report),
        baseline_pictures=baseline_bars(report),
        origins=origins_table(report, background.origin_cost),
        origin_pictures=origin_pictures(report),
        champion=_champion(report),
        champion_pictures=champion_picture(report, spec),
        quality=quality(report, spec),
        slices=_slices(report),
        slice_metrics=sorted({name for one in report.slices for name in one.metrics}, key=order),
        slice_pictures=slice_picture(report),
        lead=lead_metric(report.slices),
        importance=importance_picture(report, spec),
        training=training_pictures(
            background.story, spec.label.task, spec.label.classes, spec.model
        ),
        suspects=None if suspects is None else suspects_table(spec.name, suspects),
        rows=_rows(background, spec),
        data=feature_pictures(background.features),
        ledger=ledger_table(background.ledger),
        lineage=_lineage(background.lineage),
        facts=facts,
    )


def _overridden(override: LedgerEntry | None) -> Verdict | None:
    """Above all else: the verdict below it does not decide any more."""
    if override is None:
        return None
    failed = ", ".join(override.gates) or "its gates"
    return Verdict(
        "bad",
        f"✗ OVERRIDE: this model may be released although {failed} refused it",
        [
            f"{override.author} took responsibility on {override.time:%Y-%m-%d %H:%M} UTC (ledger"
            f" line {override.seq}, against the decision in line {override.overrides}):"
            f" {override.reason}."
        ],
    )


def _verdict(
    report: EvaluationReport,
    gates: Sequence[GateResult],
    decision: Decision | None,
    spec: PipelineSpec,
    background: Background,
) -> Verdict:
    """A pass needs gates that passed and a decision on this model."""
    refused = "✗ Refused: this model may not be released"
    if report.model == champion(background.ledger, spec.release.to):
        refused = f"✗ Judged again and refused, but it stays in {spec.release.to}"
    failed = [f"{gate.name}: {gate.reason}" for gate in gates if not gate.passed]
    if failed:
        advice = what_now(background.ledger, spec.release.to, spec.gates, gates, spec.name)
        more = [f"{advice.gate}: {advice.said}."] if advice else []
        return Verdict("bad", refused, [*failed, *more])
    if decision is None:
        why = f"{background.gates_said}." if gates else "No gate was evaluated."
        return Verdict("wait", "○ Not decided: no decision on this model is in the ledger", [why])
    if decision.evidence.model != report.model:
        about = f"The decision shown is about model {decision.evidence.model[:12]}, not this one."
        return Verdict("bad", refused, [about])
    if not decision.passed or not gates:
        return Verdict("bad", refused, [decision.reason])
    headline = f"✓ Passed: this model may go to {spec.release.to}"
    return Verdict("good", headline, [f"{decision.reason[:1].upper()}{decision.reason[1:]}."])


def _tiles(report: EvaluationReport, measured: Measured) -> list[Tile]:
    tiles = [
        Tile(
            title(name),
            f"{found.value:.{digits(name)}f}",
            f"95%: {found.low:.{digits(name)}f} to {found.high:.{digits(name)}f}",
        )
        for name, found in sorted(report.metrics.items(), key=lambda item: order(item[0]))
    ]
    speed = f"{measured.rows_per_second:,.0f} rows/s in bulk"
    return [
        *tiles,
        Tile("Size", f"{report.size_bytes / 1e6:.2f} MB", "weights and manifest"),
        Tile("Time for one row", f"{measured.latency_ms:.3g} ms", speed),
    ]


def _compared(report: EvaluationReport) -> list[tuple[str, Mapping[str, float]]]:
    """Who was scored on the holdout, this model first -> its metrics."""
    own = {name: interval.value for name, interval in report.metrics.items()}
    rival = report.champion
    return [
        ("this model", own),
        *([("champion", rival.metrics)] if rival and rival.comparable else []),
        *report.baselines.items(),
    ]


def _champion(report: EvaluationReport) -> str:
    seen = report.champion
    if seen is None:
        return "No champion yet: no other model was released when this was made."
    if not seen.comparable or seen.loss_difference is None:
        why = seen.reason or "no reason given"
        return f"Champion {seen.champion[:12]} cannot be compared: {why}."
    return (
        f"{seen.loss[:1].upper()}{seen.loss[1:]} minus that of champion {seen.champion[:12]} on"
        f" the same rows: {_gap(seen.loss_difference)}."
    )


def _gap(gap: Interval) -> str:
    if gap.high < 0:
        shown = "this model is better"
    elif gap.low > 0:
        shown = "this model is worse"
    else:
        shown = "the interval holds zero, so neither is shown to be better"
    return f"{gap.value:+.4f} (95% interval {gap.low:+.4f} to {gap.high:+.4f}): {shown}"


def _slices(report: EvaluationReport) -> list[tuple[str, list[Slice]]]:
    """Each column with its values, as the report has them."""
    lead = lead_metric(report.slices)
    return [
        (column, [Slice(one, _bar(one.metrics.get(lead), lead)) for one in group])
        for column, group in groupby(report.slices, key=lambda one: one.column)
    ]


def _bar(value: float | None, metric: str) -> str:
    if value is None:
        return ""
    share = (value - 0.5) * 2 if metric == "auc" else value
    return f"{min(max(share, 0.0), 1.0):.1%}"


def _rows(background: Background, spec: PipelineSpec) -> list[Table]:
    """The attempts that were lost, and the first rows: each where there are any."""
    story, found = background.story, []
    if story.lost:
        found.append(lost_attempts(story.lost))
    if story.first_rows is not None and background.preprocessing is not None:
        read, scale = background.preprocessing, background.label_scale
        found.append(
            decoded_rows(story.first_rows, read, spec.label.task, spec.label.classes, scale)
        )
    return found


def _lineage(lineage: Sequence[InputVersion]) -> list[Input]:
    """Each input, partition by partition as far as there is room."""
    unique = sorted(set(lineage), key=lambda one: (one.key, one.partition or "", one.version))
    room = LINEAGE_LINES
    found: list[Input] = []
    for key, group in groupby(unique, key=lambda one: one.key):
        versions = list(group)
        names = [one.partition or "–" for one in (versions[0], versions[-1])]
        span = names[0] if len(versions) == 1 else " … ".join(names)
        commits = sorted({one.commit[:12] for one in versions if one.commit})
        more = f" and {len(commits) - 3} more" if len(commits) > 3 else ""
        listed = versions[: max(room, 1)]
        found.append(Input(key, span, len(versions), listed, ", ".join(commits[:3]) + more))
        room = max(0, room - len(versions))
    return found


def _facts(
    report: EvaluationReport, decision: Decision | None, spec: PipelineSpec
) -> dict[str, str]:
    """The foot of the page."""
    label = spec.label
    facts = {
        "Model": report.model,
        "Training set": report.data,
        "Label": f"{label.column} ({label.task}), {label_words(report, label.task)}",
        "Family": f"{spec.model.family}, {_trained(spec)}, seed {spec.training.seed}",
        "Intervals": _intervals(report, spec),
        "Owner": spec.owner,
    }
    if decision is not None:
        facts["Decided"] = f"{decision.time:%Y-%m-%d %H:%M %Z} in run {decision.run}"
        facts["Policy"] = decision.evidence.policy
    return facts


def _intervals(report: EvaluationReport, spec: PipelineSpec) -> str:
    """How they are made; a calibration gate makes its own way."""
    samples, block = spec.evaluation.bootstrap_samples, spec.evaluation.block
    said = f"95%, from {samples:,} bootstrap samples of whole {block}s{_few_days(report, spec)}"
    if as_judged(report, spec.gates) is report:
        return said
    rolled = " (under Rolling origin: percentiles as well)" if report.origins else ""
    return (
        f"{said}: their percentiles, and for the calibration error Student's t, as its gate takes"
        f" it{rolled}"
    )


_FEW_DAYS = 10
"""Of fewer, nobody knows how days differ: the intervals are too narrow."""
_DAYS_OF = {"hourly": 1, "daily": 1, "weekly": 7, "monthly": 28}


def _few_days(report: EvaluationReport, spec: PipelineSpec) -> str:
    """What is to be said of intervals from a holdout of a few days; nothing where it is longer."""
    last = _DAYS_OF.get(spec.partitions.cadence)
    if spec.evaluation.block != "day" or last is None or not all(report.holdout):
        return ""
    try:
        begin, end = (date.fromisoformat(key[:10]) for key in report.holdout)
    except ValueError:  # no keys of partitions
        return ""
    days = (end - begin).days + last
    if days >= _FEW_DAYS:
        return ""
    return f" (the holdout has only {days} of them, so the intervals are too narrow)"


def _trained(spec: PipelineSpec) -> str:
    if isinstance(spec.model, Boosted):
        return f"at most {counted(spec.model.rounds, 'round')} in one process"
    training = spec.training
    many = counted(training.processes, "process")
    return f"trained with strategy {training.strategy} on {many}"
