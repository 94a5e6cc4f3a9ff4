"""canary_report: the model in canary and the champion on the next rows that neither has seen."""

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, stage_asset
from ml_assets.adapters.metadata import SHOWN, numbers, pictures, record_metadata
from ml_assets.adapters.resources import LauncherResource, StoresResource
from ml_assets.assets.evaluation_report.pictures import champion_picture
from ml_assets.assets.evaluation_report.scoring import Scorer, Subject
from ml_assets.extras.canary.canary_report.evidence import CANARY_REPORT, compare_on, require_rows
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.publish import Draft, Work
from ml_assets.records.ledger.chain import read
from ml_assets.records.load_release import load_release
from ml_assets.records.recalls import sound_champion
from ml_assets.spec.base import canonical_json, digest_of
from ml_assets.spec.records import REPORT_FILE, InputVersion
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState


def canary_report(declared: Pipeline) -> dg.AssetsDefinition:
    """The canary_report asset of a pipeline that asks for canary evidence."""

    @stage_asset(
        declared,
        CANARY_REPORT,
        description="The model in `canary` and the one in `production`, scored on the first"
        " partitions after the holdout, each with its own preprocessing.",
        kinds={"numpy"},
        deps=[asset_key(declared, "released_model"), asset_key(declared, "feature_set")],
    )
    def materialize(
        context: dg.AssetExecutionContext,
        stores: StoresResource,
        launcher: LauncherResource,
    ) -> dg.MaterializeResult:
        pipeline = stores.open(declared, keeps_objects=True)
        base = pipeline.store.resolve("main")
        rows = require_rows(pipeline.at(base))
        scorer = Scorer(context, launcher.launcher(pipeline), pipeline)
        rival, against = _champion(pipeline.at(base))
        report, measured = compare_on(pipeline, rows, scorer, against)
        compared = InputVersion(key="champion", partition=None, version=rival or "", commit=None)
        work = Work(
            Address(pipeline.name, CANARY_REPORT),
            code_version_of(pipeline, CANARY_REPORT),
            rows.inputs,
            context.run.run_id,
            seen=(compared,) if rival else (),
        )
        with Draft(pipeline, work, base, rows=report.rows) as draft:
            draft.text(REPORT_FILE, canonical_json(report))
            published = draft.publish(
                attributes={
                    "measured": measured.model_dump(),
                    "period": rows.period(report.rows).model_dump(),
                },
                data_version=digest_of(report),
            )
        return dg.MaterializeResult(
            metadata={
                **pictures(champion_picture(report, pipeline.spec)),
                "model": report.model[:SHOWN],
                "champion": rival[:SHOWN] if rival else "none yet",
                "period": " to ".join(rows.span),
                **numbers({name: i.value for name, i in report.metrics.items()}),
                **record_metadata(published),
            },
            data_version=dg.DataVersion(published.record.data_version),
        )

    return materialize


def _champion(state: PipelineState) -> tuple[str | None, Subject | None]:
    """The model in the stage that the canary is to take: its digest, and its verified files."""
    to, entries = state.spec.release.to, read(state.store, state.name, state.commit)
    rival = sound_champion(state.store, state.commit, state.name, entries, to)
    if not rival:
        return None, None
    release = load_release(state.store, state.objects, state.name, to, state.commit)
    return rival, Subject.certified(state.pipeline, release.model, release.manifest)
