"""evaluation_report: the exported weights judged on the holdout, beside baselines and champion."""

from typing import TYPE_CHECKING

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, journaled, stage_asset
from ml_assets.adapters.metadata import glance, model_links, numbers, pictures, record_metadata
from ml_assets.adapters.resources import LauncherResource, StoresResource
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.publish import Published, Work
from ml_assets.reports.wording import plain_markdown
from ml_assets.spec.records import (
    EvaluationReport,
)
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline

if TYPE_CHECKING:
    from ml_assets.assets.evaluation_report.evaluate_and_publish import Evaluation

STAGE = "evaluation_report"
ON_AN_ASSET = 10
"""Label suspects that the asset's page shows."""


def evaluation_report(declared: Pipeline) -> dg.AssetsDefinition:
    """The evaluation_report asset of a pipeline."""
    code_version = code_version_of(declared, STAGE)

    @stage_asset(
        declared,
        STAGE,
        code_version=code_version,
        description="Metrics with intervals on rows the model never saw, beside the baselines and"
        " the champion on the same rows. The gates are checks on this asset.",
        kinds={"numpy", "scikitlearn"},
        deps=[asset_key(declared, "trained_model"), asset_key(declared, "training_set")],
    )
    @journaled(declared, STAGE)
    def materialize(
        context: dg.AssetExecutionContext,
        stores: StoresResource,
        launcher: LauncherResource,
    ) -> dg.MaterializeResult:
        from ml_assets.assets.evaluation_report.evaluate_and_publish import (
            evaluate,
            publish_evaluation,
        )

        pipeline = stores.open(declared, keeps_objects=True)
        made = evaluate(context, launcher.launcher(pipeline), pipeline.now())
        address = Address(pipeline.name, STAGE)
        work = Work(address, code_version, made.inputs, context.run.run_id, seen=made.seen)
        return _result(made, publish_evaluation(made, work))

    return materialize


def _result(made: "Evaluation", published: Published) -> dg.MaterializeResult:
    from ml_assets.assets.evaluation_report.pictures import (
        at_a_glance,
        evaluation_pictures,
        origins_table,
        suspects_table,
    )
    from ml_assets.assets.evaluation_report.quality_pictures import quality
    from ml_assets.reports.decisions import as_judged
    from ml_assets.reports.tables import changes_table

    pipeline = made.state.pipeline
    report = as_judged(made.report, pipeline.spec.gates)
    shown = [*evaluation_pictures(report, pipeline.spec), changes_table(made.since)]
    if made.wrong is not None:
        shown.append(suspects_table(pipeline.name, made.wrong, most=ON_AN_ASSET))
    if (origins := origins_table(report, made.rolled.cost if made.rolled else {})) is not None:
        shown.append(origins)
    if samples := quality(report, pipeline.spec).samples:
        shown.append(samples)
    said = report.recommendation
    return dg.MaterializeResult(
        metadata={
            **glance(at_a_glance(report)),
            **pictures(shown),
            "metrics": dg.MetadataValue.md(metrics_markdown(report)),
            **({"recommendation": said.reason} if said else {}),
            **model_links(pipeline, made.model),
            **numbers({name: interval.value for name, interval in report.metrics.items()}),
            **numbers({"latency_ms": made.measured.latency_ms}),
            **record_metadata(published),
        },
        data_version=dg.DataVersion(published.record.data_version),
    )


def metrics_markdown(report: EvaluationReport) -> str:
    """Model, baselines and champion, side by side."""
    names = list(report.metrics)
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    cells = [f"{i.value:.4f} [{i.low:.4f}, {i.high:.4f}]" for i in report.metrics.values()]
    lines.append(f"| **model** | {' | '.join(cells)} |")
    others = dict(report.baselines)
    if report.champion and report.champion.comparable:
        others["champion"] = report.champion.metrics
    for name, values in others.items():
        cells = [f"{values[m]:.4f}" if m in values else "" for m in names]
        lines.append(f"| {plain_markdown(name)} | {' | '.join(cells)} |")
    return "\n".join(lines)
