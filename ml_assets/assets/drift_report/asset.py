"""drift_report: the newest periods against what the release was trained on, and the same season."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import numpy as np
import polars as pl

from ml_assets.adapters.declared import asset_key, stage_asset
from ml_assets.adapters.launcher import LauncherResource
from ml_assets.adapters.metadata import numbers, pictures, record_metadata
from ml_assets.adapters.stores import StoresResource
from ml_assets.assets.drift_report.compare import Comparison, NewPeriod
from ml_assets.assets.drift_report.findings import REPORT_FILE, DriftReport, KindVerdict, PastPeriod
from ml_assets.assets.drift_report.last_report import last_report
from ml_assets.assets.drift_report.pictures import drift_pictures
from ml_assets.assets.drift_report.verdict import (
    KINDS,
    TITLES,
    conclude,
    raise_alarm,
    remember,
    summary,
)
from ml_assets.assets.drift_report.windows import DriftWindows, drift_windows
from ml_assets.assets.evaluation_report.drift_baseline_rows import (
    label_columns,
    labelled,
    period_losses,
    prediction_columns,
    with_period,
)
from ml_assets.assets.evaluation_report.scoring import Scorer, Subject, score
from ml_assets.assets.training_set.shards import write_rows_to_score
from ml_assets.errors import EvidenceError, RowsRefused
from ml_assets.graph.publish import Draft
from ml_assets.records.loading import open_files
from ml_assets.spec.canonical import canonical_json, digest_of
from ml_assets.spec.drift import DriftKind, DriftSpec
from ml_assets.spec.stages import DRIFT_STAGE
from ml_assets.store.pipeline_context import Pipeline

CHECKS: dict[DriftKind, str] = {kind: f"drift_{kind}" for kind in KINDS}
"""Kind -> the name of its check."""


def drift_report(declared: Pipeline) -> dg.AssetsDefinition:
    """The drift_report asset of a pipeline that watches for drift, and a check for each kind."""
    key = asset_key(declared, DRIFT_STAGE)

    @stage_asset(
        declared,
        DRIFT_STAGE,
        description="The newest periods of feature_set, the release's predictions on them and its"
        " losses where labels have matured, against what this release was trained on and against"
        " the same season of before.",
        kinds={"polars", "numpy"},
        deps=[asset_key(declared, "released_model"), asset_key(declared, "feature_set")],
        check_specs=[
            dg.AssetCheckSpec(name, asset=key, description=f"{TITLES[kind]}: no drift.")
            for kind, name in CHECKS.items()
        ],
    )
    def materialize(
        context: dg.AssetExecutionContext,
        stores: StoresResource,
        launcher: LauncherResource,
    ) -> Iterator[dg.MaterializeResult]:
        pipeline = stores.open(declared, keeps_objects=True)
        base = pipeline.store.resolve("main")
        windows = drift_windows(pipeline.at(base))
        if isinstance(windows, str):
            raise EvidenceError(f"{pipeline.name}: {windows}.")
        scorer = Scorer(context, launcher.launcher(pipeline), pipeline)
        report = compare(pipeline, windows, scorer, last_report(pipeline.at(base)))
        work = windows.work(pipeline, context.run.run_id)
        with Draft(pipeline, work, base, rows=sum(w.rows for w in report.windows)) as draft:
            draft.text(REPORT_FILE, canonical_json(report))
            published = draft.publish(
                attributes={
                    "model": report.model,
                    "newest": report.newest.period,
                    "alarm": report.alarm.model_dump(mode="json") if report.alarm else None,
                },
                data_version=digest_of(report.model_copy(update={"time": _NO_TIME})),
            )
        context.log.info(summary(report))
        yield dg.MaterializeResult(
            metadata={
                **pictures(drift_pictures(report)),
                "said": summary(report),
                "release": report.model,
                "periods": ", ".join(window.period for window in report.windows),
                **_ratios(report),
                **record_metadata(published),
            },
            data_version=dg.DataVersion(published.record.data_version),
            check_results=[_check(key, outcome) for outcome in report.outcomes],
        )

    return materialize


_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


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
    outcomes = conclude(found, spec, {**waiting, **judging.not_judged})
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


def _declared(pipeline: Pipeline) -> DriftSpec:
    assert pipeline.spec.drift is not None  # there is no such asset without
    return pipeline.spec.drift


def _history(before: DriftReport | None) -> Sequence[PastPeriod]:
    return before.history if before else ()


def _new_periods(
    pipeline: Pipeline, windows: DriftWindows, scorer: Scorer
) -> tuple[list[NewPeriod], list[str]]:
    """The rows of every period, scored in one go; and what could not be done."""
    frames = {
        str(record.partition): _in_order(pipeline, windows.rows(pipeline, record))
        for record in windows.all
    }
    matured = {record.partition for record in windows.matured}
    predictions = _predictions(pipeline, windows, scorer, pl.concat(list(frames.values())))
    if isinstance(predictions, str):
        return [
            NewPeriod(period, rows, windows.season(pipeline, record))
            for (period, rows), record in zip(frames.items(), windows.all, strict=True)
        ], [predictions]
    found: list[NewPeriod] = []
    ends = np.cumsum([len(rows) for rows in frames.values()])[:-1]
    for record, part in zip(windows.all, np.split(predictions, ends), strict=True):
        period = str(record.partition)
        rows = frames[period]
        mature = period in matured
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
                season=windows.season(pipeline, record),
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
    without = [
        key for key in (str(r.partition) for r in windows.periods) if key not in windows.seasons
    ]
    if spec.seasonal and without:
        notes.append(
            f"the season of {', '.join(without)} has no history {spec.seasonal.back} periods"
            " earlier: held to the training rows alone"
        )
    if judging.restless:
        notes.append(
            f"the classifier goes without {', '.join(judging.restless)}: they differ from period to"
            " period by themselves"
        )
    return notes


def _ratios(report: DriftReport) -> dict[str, Any]:
    newest = report.history[-1].ratios if report.history else {}
    return numbers({f"{kind}_over_bound": ratio for kind, ratio in newest.items()})


def _check(key: dg.AssetKey, outcome: KindVerdict) -> dg.AssetCheckResult:
    value = {"value": outcome.value, "bound": outcome.bound}
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=CHECKS[outcome.kind],
        passed=not outcome.alarm,
        severity=dg.AssetCheckSeverity.WARN,
        description=outcome.reason,
        metadata={
            **numbers(value),
            "column": outcome.column,
            "periods": ", ".join(outcome.windows) or "none",
        },
    )
