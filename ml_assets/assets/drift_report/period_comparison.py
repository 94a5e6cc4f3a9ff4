"""Compares new periods with a baseline; the kinds of drift share the false alarms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import hypot, inf

import numpy as np
import polars as pl

from ml_assets.assets.drift_report.blind_spots import when_enough
from ml_assets.assets.drift_report.columns import FEWEST_PERIODS, Reference, judge_columns
from ml_assets.assets.drift_report.domain_classifier import Domain
from ml_assets.assets.drift_report.findings import (
    Cause,
    DriftReport,
    Finding,
    JudgedPeriod,
    Measure,
    PastPeriod,
    Shape,
)
from ml_assets.assets.drift_report.verdict import (
    KINDS,
    conclude,
    raise_alarm,
    remember,
)
from ml_assets.assets.drift_report.windows import DriftWindows
from ml_assets.assets.evaluation_report.drift_baseline import (
    Baseline,
    PeriodLoss,
    label_columns,
    labelled,
    period_losses,
    prediction_columns,
    with_period,
)
from ml_assets.assets.evaluation_report.drift_profile import Period, Profile, count, labels, merge
from ml_assets.assets.evaluation_report.scoring import Scorer, Subject, score
from ml_assets.assets.training_set.shards import write_rows_to_score
from ml_assets.errors import RowsRefused, counted
from ml_assets.records.load_release import open_files
from ml_assets.spec.drift import DriftKind, DriftSpec
from ml_assets.store.pipeline_context import Pipeline

_OF_TRAINING: tuple[DriftKind, ...] = ("features", "nulls", "categories", "domain", "labels")
LOSS = "mean loss"
"""The column of a finding about performance."""
SHAPES = 4
"""Columns whose histograms are kept."""
_STATISTICS = 5
"""Statistics of a column: three distances, nulls, new categories."""


@dataclass(frozen=True)
class NewPeriod:
    """The values of one period that are judged; what is absent is not judged."""

    period: str
    rows: pl.DataFrame
    season: pl.DataFrame | None = None
    """The same season of before."""
    predictions: pl.DataFrame | None = None
    labels: pl.DataFrame | None = None
    """Where they have matured."""
    loss: PeriodLoss | None = None
    """Where the labels have matured and the period came after the holdout."""


@dataclass
class Comparison:
    """A baseline, back-tested once, and the periods that are held to it.

    Args:
        samples: rows of each training period, for the domain classifier.
    """

    baseline: Baseline
    samples: Mapping[str | None, pl.DataFrame]
    spec: DriftSpec
    restless: tuple[str, ...] = field(init=False)
    """Columns that differ from period to period by themselves: the classifier goes without."""

    def __post_init__(self) -> None:
        self._alpha = self.spec.false_alarms / len(KINDS)
        self._features = self._reference(self.baseline.features)
        self._predictions = self._reference(self.baseline.predictions)
        self._labels = self._reference(self.baseline.labels)
        names = self.baseline.features.names
        found = self._features.back.restless
        told = {name for name, restless in zip(names, found, strict=True) if restless}
        self.restless = tuple(name for name in names if name in {*told, *self.spec.leave_out})
        bins = [one for one in self.baseline.features.bins if one.name not in self.restless]
        floor = self.spec.bounds.domain_auc
        self._domain = Domain.of(bins, self.samples, self._alpha, floor)

    @property
    def not_judged(self) -> dict[DriftKind, str]:
        """Kind -> why it is not: nobody knows how much its periods differ by themselves."""
        few = f"at least {FEWEST_PERIODS} are needed to know how much they differ without drift"
        found: dict[DriftKind, str] = {}
        if not self._features.back.periods:
            many = counted(len(self.baseline.features.periods), "period")
            said = f"the training split has {many}, {few}"
            found.update(dict.fromkeys(_OF_TRAINING, said))
        if not self._predictions.back.periods:
            many = counted(len(self.baseline.predictions.periods), "period")
            found["predictions"] = f"the holdout has {many}, {few}"
        return found

    @property
    def back_tested(self) -> int:
        """Training periods that the bounds were held to; 0: too few."""
        return self._features.back.periods

    def judge(self, new: NewPeriod) -> JudgedPeriod:
        """All that one period shows."""
        features = self.baseline.features
        season = count(new.season, features.bins, None) if new.season is not None else None
        found = self._columns(self._features, features, new.rows, season, "features")
        left_out = {*self.spec.leave_out}
        found = [one for one in found if one.column not in left_out]
        told = self._domain.judge(new.rows, new.season) if self.back_tested else None
        found += [told] if told else []
        if new.predictions is not None:
            profile = self.baseline.predictions
            found += self._columns(self._predictions, profile, new.predictions, None, "predictions")
        if new.labels is not None and len(new.labels):
            profile = self.baseline.labels
            found += self._columns(self._labels, profile, new.labels, None, "labels")
        if new.loss is not None:
            floor = self.spec.bounds.loss_rise
            decay = judge_loss(self.baseline.losses, new.loss, self._alpha, floor)
            found += [decay] if decay else []
        return JudgedPeriod(period=new.period, rows=len(new.rows), findings=tuple(found))

    def shapes(self, new: pl.DataFrame, window: JudgedPeriod) -> tuple[Shape, ...]:
        """The histograms of the features that are furthest beyond their bounds."""
        features = self.baseline.features
        ranked = sorted(
            (one for one in window.findings if one.column in features.names),
            key=lambda one: -one.worst.ratio,
        )
        columns = list(dict.fromkeys(one.column for one in ranked))[:SHAPES]
        bins = [one for one in features.bins if one.name in columns]
        then = merge(features.periods, None)
        was = dict(zip(features.names, then.counts, strict=True))
        now = dict(zip([one.name for one in bins], count(new, bins, None).counts, strict=True))
        named = {one.name: labels(one) for one in bins}
        return tuple(
            Shape(
                column=name,
                bins=named[name],
                training=tuple(n / max(then.rows, 1) for n in was[name]),
                new=tuple(n / max(len(new), 1) for n in now[name]),
            )
            for name in columns
        )

    def _reference(self, profile: Profile) -> Reference:
        return Reference.of(profile, self._each(profile))

    def _each(self, profile: Profile) -> float:
        """The chance left to one statistic of one column (Bonferroni)."""
        return self._alpha / max(1, _STATISTICS * len(profile.bins))

    def _columns(
        self,
        reference: Reference,
        profile: Profile,
        rows: pl.DataFrame,
        season: Period | None,
        kind: DriftKind,
    ) -> list[Finding]:
        if not reference.back.periods:
            return []
        return judge_columns(
            reference,
            reference.of_season(season) if season else None,
            count(rows, profile.bins, None),
            self.spec.bounds,
            self._each(profile),
            kind,
        )


def judge_loss(
    held: Sequence[PeriodLoss], new: PeriodLoss, alpha: float, floor: float
) -> Finding | None:
    """Return whether the rise of the mean loss is more than by chance, and large enough to matter.

    The interval is Student's, with the blocks of the new period for its degrees; it holds the
    errors of both sides and the spread that the holdout's own periods have beyond those.

    Args:
        held: of the holdout's periods.
        floor: the smallest rise that matters, as a share of the holdout's loss.
    """
    from scipy.stats import t

    units = sum(one.units for one in held)
    if not units:
        return None
    share = np.array([one.units / units for one in held])
    means = np.array([one.mean for one in held])
    errors = np.array([one.error for one in held])
    expected = float(share @ means)
    if expected <= 0:
        return None
    between = float(means.var(ddof=1) - (errors**2).mean()) if len(held) > 1 else 0.0
    spread = (max(between, 0.0) * (1 + 1 / len(held))) ** 0.5
    sampled = hypot(new.error, float(np.sqrt(((share * errors) ** 2).sum())))
    deviation = hypot(sampled, spread)
    by_chance = float(t.isf(alpha, new.blocks - 1)) * deviation / expected
    rise = new.mean / expected - 1
    bound = max(floor, by_chance)
    if not bound < inf:
        return None
    because: Cause = "periods" if spread > sampled else "chance"
    because = "effect" if by_chance <= floor else because
    measure = Measure(statistic="loss_rise", value=rise, bound=bound, because=because)
    return Finding(kind="performance", column=LOSS, measures=(measure,))


def compare(
    pipeline: Pipeline,
    windows: DriftWindows,
    scorer: Scorer,
    before: DriftReport | None,
) -> DriftReport:
    """Judge the periods.

    Args:
        before: the report before: its alarm stands while the release is the same.
    """
    spec, baseline = _declared(pipeline), windows.baseline
    judging = Comparison(baseline, windows.training_samples(pipeline), spec)
    new, notes = _new_periods(pipeline, windows, scorer)
    found = tuple(judging.judge(one) for one in new)
    waiting: dict[DriftKind, str] = {"labels": windows.waiting, "performance": windows.waiting}
    outcomes = conclude(found, spec, {**waiting, **_not_judged(pipeline, judging)})
    shown = found[-len(windows.periods) :]
    same = before if before and before.model == baseline.model else None
    return DriftReport(
        pipeline=pipeline.name,
        model=baseline.model,
        trained_on=baseline.trained_on,
        training_rows=baseline.features.rows,
        back_tested=judging.back_tested,
        windows=found,
        outcomes=outcomes,
        notes=(*notes, *_notes(windows, judging, spec)),
        alarm=raise_alarm(outcomes, windows.newest, same.alarm if same else None),
        shapes=judging.shapes(new[-1].rows, found[-1]),
        history=remember(_history(before), shown, baseline.model),
        time=datetime.now(UTC),
    )


def _not_judged(pipeline: Pipeline, judging: Comparison) -> dict[DriftKind, str]:
    """Kind -> why it is not judged, and when it will be."""
    found = judging.not_judged
    split = {kind: "holdout" if kind == "predictions" else "train" for kind in found}
    return {
        kind: f"{why}; {when_enough(pipeline, split[kind])}".removesuffix("; ")
        for kind, why in found.items()
    }


def _declared(pipeline: Pipeline) -> DriftSpec:
    assert pipeline.spec.drift is not None  # there is no such asset without
    return pipeline.spec.drift


def _history(before: DriftReport | None) -> Sequence[PastPeriod]:
    return before.history if before else ()


def _new_periods(
    pipeline: Pipeline, windows: DriftWindows, scorer: Scorer
) -> tuple[list[NewPeriod], list[str]]:
    """The rows of every period, scored in one go; and what could not be done."""
    frames = {one: _in_order(pipeline, windows.rows(pipeline, one)) for one in windows.all}
    predictions = _predictions(pipeline, windows, scorer, pl.concat(list(frames.values())))
    if isinstance(predictions, str):
        return [
            NewPeriod(period, rows, windows.season(pipeline, period))
            for period, rows in frames.items()
        ], [predictions]
    found: list[NewPeriod] = []
    ends = np.cumsum([len(rows) for rows in frames.values()])[:-1]
    for period, part in zip(windows.all, np.split(predictions, ends), strict=True):
        rows = frames[period]
        mature = period in windows.matured
        has_label = rows[pipeline.spec.label.column].is_not_null().to_numpy()
        losses = (
            period_losses(
                pipeline.spec,
                with_period(labelled(rows, pipeline.spec.label), period),
                part[has_label],
            )
            if mature and has_label.any()
            else ()
        )
        found.append(
            NewPeriod(
                period=period,
                rows=rows,
                season=windows.season(pipeline, period),
                predictions=prediction_columns(part, pipeline.spec.label),
                labels=label_columns(pipeline.spec.label, rows) if mature else None,
                loss=losses[0] if losses else None,
            )
        )
    return found, []


def _in_order(pipeline: Pipeline, rows: pl.DataFrame) -> pl.DataFrame:
    """Those of a query side by side."""
    query = pipeline.spec.label.query
    return rows.sort(query, maintain_order=True) if query else rows


def _predictions(
    pipeline: Pipeline, windows: DriftWindows, scorer: Scorer, rows: pl.DataFrame
) -> np.ndarray | str:
    """[rows, outputs] of the release; or why it cannot be asked."""
    found = open_files(pipeline.objects, pipeline.name, windows.baseline.model)
    model = Subject.certified(pipeline, *found)
    shards = pipeline.objects.folder("shards", pipeline.name)
    try:
        data = write_rows_to_score(rows, model.manifest, shards)
    except RowsRefused as error:
        return f"predictions and performance are not judged: {error}"
    scored = score(scorer.context, scorer.launcher, pipeline.spec, model, data, "holdout")
    return scored.predictions


def _notes(windows: DriftWindows, judging: Comparison, spec: DriftSpec) -> list[str]:
    notes = [windows.waiting] if windows.waiting else []
    without = [key for key in windows.periods if key not in windows.seasons]
    if spec.seasonal and without:
        notes.append(
            f"{', '.join(without)} cannot be compared with the same season: there is no history"
            f" {counted(spec.seasonal.back, 'period')} earlier"
        )
    if judging.restless:
        notes.append(
            f"the classifier leaves out {', '.join(judging.restless)}: they differ from one"
            " period to the next anyway"
        )
    return notes
