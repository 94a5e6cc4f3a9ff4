"""drift_report: the newest periods against the training data and against the same season."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, stage_asset
from ml_assets.adapters.metadata import glance, numbers, pictures, record_metadata
from ml_assets.adapters.resources import LauncherResource, StoresResource
from ml_assets.assets.drift_report.verdict import (
    KINDS,
    TITLES,
    summary,
)
from ml_assets.errors import EvidenceError
from ml_assets.graph.publish import Draft, Published, Work
from ml_assets.spec.base import canonical_json, digest_of
from ml_assets.spec.drift import DriftKind
from ml_assets.spec.stages import DRIFT_STAGE
from ml_assets.store.pipeline_context import Pipeline, PipelineState

if TYPE_CHECKING:
    from ml_assets.assets.drift_report.findings import DriftReport, KindVerdict

CHECKS: dict[DriftKind, str] = {kind: f"drift_{kind}" for kind in KINDS}
"""Kind -> the name of its check."""


def drift_report(declared: Pipeline) -> dg.AssetsDefinition:
    """The drift_report asset of a pipeline that watches for drift, and a check for each kind."""
    key = asset_key(declared, DRIFT_STAGE)

    @stage_asset(
        declared,
        DRIFT_STAGE,
        description="The newest periods of feature_set, the release's predictions on them "
        "and its losses where labels have matured, against what this release was trained "
        "on and against the same season earlier.",
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
        from ml_assets.assets.drift_report.last_report import last_report
        from ml_assets.assets.drift_report.period_comparison import compare
        from ml_assets.assets.drift_report.windows import drift_windows
        from ml_assets.assets.evaluation_report.scoring import Scorer

        pipeline = stores.open(declared, keeps_objects=True)
        base = pipeline.store.resolve("main")
        windows = drift_windows(pipeline.at(base))
        if isinstance(windows, str):
            raise EvidenceError(f"{pipeline.name}: {windows}.")
        scorer = Scorer(context, launcher.launcher(pipeline), pipeline)
        report = compare(pipeline, windows, scorer, last_report(pipeline.at(base)))
        work = windows.work(pipeline, context.run.run_id)
        published = publish_report(pipeline.at(base), work, report)
        context.log.info(summary(report))
        for outcome in report.outcomes:
            if outcome.cannot_alarm:
                context.log.warning(f"{TITLES[outcome.kind]} cannot alarm: {outcome.reason}")
        yield dg.MaterializeResult(
            metadata={**_shown(report), **record_metadata(published)},
            data_version=dg.DataVersion(published.record.data_version),
            check_results=[_check(key, outcome) for outcome in report.outcomes],
        )

    return materialize


def publish_report(state: PipelineState, work: Work, report: "DriftReport") -> Published:
    """Publish a report; its version does not depend on when it was made."""
    from ml_assets.spec.records import REPORT_FILE

    rows = sum(window.rows for window in report.windows)
    with Draft(state.pipeline, work, state.commit, rows=rows) as draft:
        draft.text(REPORT_FILE, canonical_json(report))
        return draft.publish(
            attributes={
                "model": report.model,
                "newest": report.newest.period,
                "alarm": report.alarm.model_dump(mode="json") if report.alarm else None,
            },
            data_version=digest_of(report.model_copy(update={"time": _NO_TIME})),
        )


_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def _shown(report: "DriftReport") -> dict[str, Any]:
    """What the page shows of a report."""
    from ml_assets.assets.drift_report.pictures import at_a_glance, drift_pictures

    newest = report.history[-1].ratios if report.history else {}
    return {
        **glance(at_a_glance(report)),
        **pictures(drift_pictures(report)),
        "said": summary(report),
        "release": report.model,
        "periods": ", ".join(window.period for window in report.windows),
        **numbers({f"{kind}_over_bound": ratio for kind, ratio in newest.items()}),
    }


def _check(key: dg.AssetKey, outcome: "KindVerdict") -> dg.AssetCheckResult:
    value = {"value": outcome.value, "bound": outcome.bound}
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=CHECKS[outcome.kind],
        passed=not outcome.alarm,
        severity=dg.AssetCheckSeverity.WARN,
        description=(f"cannot alarm: {outcome.reason}" if outcome.cannot_alarm else outcome.reason),
        metadata={
            **numbers(value),
            "column": outcome.column,
            "periods": ", ".join(outcome.windows) or "none",
        },
    )
