"""canary_report: the model in canary and the champion on the next rows that neither has seen."""

import dagster as dg

from ml_assets.assets.canary_report.evidence import CANARY_REPORT, compare_on, require_rows
from ml_assets.assets.evaluation_report.pictures import champion_picture
from ml_assets.assets.evaluation_report.scoring import Scorer, Subject
from ml_assets.graph.inputs import resolve_base
from ml_assets.graph.metadata import numbers, pictures, record_metadata
from ml_assets.graph.pipeline_graph import PipelineGraph
from ml_assets.graph.publish import Draft, Work
from ml_assets.records.ledger.chain import read
from ml_assets.records.loading import load_release
from ml_assets.records.recalls import sound_champion
from ml_assets.resources.launcher import LauncherResource
from ml_assets.resources.objects import ObjectsResource
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.spec.canonical import canonical_json, digest_of
from ml_assets.spec.records import InputVersion
from ml_assets.store.layout import Address

REPORT_FILE = "report.json"


def canary_report(graph: PipelineGraph) -> dg.AssetsDefinition:
    """The canary_report asset of a pipeline that asks for canary evidence."""

    @graph.asset(
        CANARY_REPORT,
        description="The model in `canary` and the one in `production`, scored on the first"
        " partitions behind the holdout, each with its own preprocessing.",
        kinds={"numpy"},
        deps=[graph.key("released_model"), graph.key("feature_set")],
    )
    def materialize(
        context: dg.AssetExecutionContext,
        snapshots: SnapshotsResource,
        objects: ObjectsResource,
        launcher: LauncherResource,
    ) -> dg.MaterializeResult:
        store = snapshots.store()
        base = resolve_base(context, store)
        rows = require_rows(graph, store, base)
        scorer = Scorer(context, launcher.launcher(), objects.store(), graph.spec)
        entries = read(store, graph.name, base)
        rival = sound_champion(store, base, graph.name, entries, graph.spec.release.to)
        against: Subject | None = None
        if rival:
            release = load_release(store, objects.store(), graph.name, graph.spec.release.to, base)
            against = Subject(release.model, release.manifest)
        report, measured = compare_on(graph, store, rows, scorer, against)
        compared = InputVersion(key="champion", partition=None, version=rival or "", commit=None)
        work = Work(
            Address(graph.name, CANARY_REPORT),
            graph.code_version(CANARY_REPORT),
            rows.inputs,
            context.run.run_id,
            seen=(compared,) if rival else (),
        )
        with Draft(store, work, base, rows=report.rows) as draft:
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
                **pictures(champion_picture(report, graph.spec)),
                "model": report.model,
                "champion": rival or "none yet",
                "period": " to ".join(rows.span),
                **numbers({name: i.value for name, i in report.metrics.items()}),
                **record_metadata(published),
            },
            data_version=dg.DataVersion(published.record.data_version),
        )

    return materialize
