"""promoted_model: the move from canary to production, refused unless the canary proved itself."""

import dagster as dg

from ml_assets.assets.canary_report.evidence import CANARY_REPORT, canary_evidence, require_rows
from ml_assets.assets.released_model.asset import project
from ml_assets.assets.released_model.origins import require_made_here
from ml_assets.assets.released_model.page import show_release
from ml_assets.assets.released_model.promote import Refused, promote
from ml_assets.errors import EvidenceError
from ml_assets.graph.inputs import resolve_base
from ml_assets.graph.pipeline_graph import PipelineGraph
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.origin import Origin, find_origin
from ml_assets.records.ledger.stages import champion, stage_line
from ml_assets.records.loading import open_files
from ml_assets.resources.objects import ObjectsResource
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.resources.tracking import TrackingResource
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.objects import LocalObjects
from ml_assets.store.snapshots import CommitId, SnapshotStore

STAGE = "promoted_model"


def promoted_model(graph: PipelineGraph) -> dg.AssetsDefinition:
    """The promoted_model asset of a pipeline that asks for canary evidence."""

    @graph.asset(
        STAGE,
        description="The model in `production`. It verifies the decision on the canary against the"
        " evidence as it is now, whatever path led here, and fails closed.",
        kinds={"mlflow"},
        deps=[graph.key(CANARY_REPORT)],
    )
    def materialize(
        context: dg.AssetExecutionContext,
        snapshots: SnapshotsResource,
        objects: ObjectsResource,
        tracking: TrackingResource,
    ) -> dg.MaterializeResult:
        store = snapshots.store()
        base = resolve_base(context, store)
        move, origin = move_on(graph, store, objects.store(), base, context.run.run_id)
        context.log.info(f"in {move.stage}: {move.model[:12]}, by line {move.seq}")
        project(context.log, store, tracking.tracking(), graph.name)
        shown = show_release(graph, store, origin.commit, move, context.run.run_id, STAGE)
        return dg.MaterializeResult(metadata=shown.metadata, data_version=shown.data_version)

    return materialize


def move_on(
    graph: PipelineGraph, store: SnapshotStore, objects: LocalObjects, base: CommitId, run: str
) -> tuple[LedgerEntry, Origin]:
    """Move the model in canary to production; the line, and where the model comes from.

    A promotion that was killed behind its line is there already, and only has to be shown.

    Raises:
        EvidenceError: no model is in canary, or its evidence does not hold, or what is behind it
            was read elsewhere or made by other code.
        StorageError: a file of the model was changed or lost since.
    """
    entries = read(store, graph.name, base)
    there = stage_line(entries, graph.spec.release.to)
    if there is not None and champion(entries, "canary") is None:
        origin = find_origin(store, graph.name, there.model)
        if origin is not None:
            return there, origin
    rows = require_rows(graph, store, base)
    require_made_here(graph, store, rows.model.commit)
    open_files(objects, graph.name, rows.model.model.data_version)
    outcome = promote(
        store,
        graph.name,
        lambda entries: canary_evidence(graph, store, base, entries),
        graph.spec.release,
        author=graph.spec.owner,
        run=run,
    )
    if isinstance(outcome, Refused):
        model = rows.model.model.data_version
        said = "\n".join(f"  {reason}" for reason in outcome.reasons)
        raise EvidenceError(f"{graph.name}: model {model[:12]} stays in canary.\n{said}")
    return outcome.entry, rows.model
