"""released_model: the move to a stage, refused unless the evidence itself allows it."""

from typing import TYPE_CHECKING

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, journaled, stage_asset
from ml_assets.adapters.resources import StoresResource
from ml_assets.errors import EvidenceError
from ml_assets.graph.inputs import require_record
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import SnapshotStore

if TYPE_CHECKING:
    from ml_assets.records.tracking.mlflow import Tracking

STAGE = "released_model"


def released_model(declared: Pipeline) -> dg.AssetsDefinition:
    """The released_model asset of a pipeline."""
    spec = declared.spec

    @stage_asset(
        declared,
        STAGE,
        description=f"The model in `{spec.release.entrance}`. It verifies the decision in the "
        "ledger against the present evidence, however the run was started, and fails "
        "closed.",
        kinds={"mlflow"},
        deps=[asset_key(declared, "trained_model"), asset_key(declared, "evaluation_report")],
    )
    @journaled(declared, STAGE)
    def materialize(
        context: dg.AssetExecutionContext,
        stores: StoresResource,
    ) -> dg.MaterializeResult:
        from ml_assets.assets.released_model.gate_decision import evidence_to_release
        from ml_assets.assets.released_model.page import show_release
        from ml_assets.assets.released_model.promote import AlreadyReleased, Refused, release
        from ml_assets.records.tracking.mlflow import Tracking

        pipeline = stores.open(declared, keeps_objects=True)
        base = pipeline.store.resolve("main")
        model = require_record(pipeline.at(base), pipeline.address("trained_model"))
        outcome = release(
            pipeline.store,
            pipeline.name,
            lambda entries: evidence_to_release(pipeline.at(base), entries),
            spec.release,
            author=spec.owner,
            run=context.run.run_id,
        )
        if isinstance(outcome, Refused):
            raise EvidenceError(
                f"{pipeline.name}: model {model.data_version[:12]} is not released.\n"
                + "\n".join(f"  {reason}" for reason in outcome.reasons)
            )
        again = isinstance(outcome, AlreadyReleased)
        context.log.info(
            f"{'already' if again else 'now'} in {outcome.entry.stage}: {model.data_version[:12]}"
        )
        project(context.log, pipeline.store, Tracking.of(pipeline.settings), pipeline.name)
        shown = show_release(pipeline.at(base), outcome.entry, context.run.run_id)
        return dg.MaterializeResult(
            metadata=shown.metadata, data_version=dg.DataVersion(shown.data_version)
        )

    return materialize


def project(
    log: dg.DagsterLogManager, store: SnapshotStore, tracking: "Tracking", pipeline: str
) -> None:
    """Show the ledger's stages in MLflow; a dead server is a warning, never a failure.

    So is a state that could not be named, or a registered model that is another home's.
    """
    from ml_assets.assets.released_model.tags import unnamed_releases
    from ml_assets.records.tracking.projection import behind, project_stages

    for said in unnamed_releases(store, pipeline):
        log.warning(said)
    if said := behind(project_stages(store, tracking, pipeline)):
        log.warning(said)
