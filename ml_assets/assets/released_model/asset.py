"""released_model: the move to a stage, refused unless the evidence itself says yes."""

from collections.abc import Sequence

import dagster as dg

from ml_assets.assets.released_model.gates.decide import policy_digest
from ml_assets.assets.released_model.origins import require_made_here
from ml_assets.assets.released_model.page import STAGE, show_release
from ml_assets.assets.released_model.promote import AlreadyReleased, Refused, release
from ml_assets.errors import EvidenceError
from ml_assets.graph.inputs import require_record, resolve_base
from ml_assets.graph.pipeline_graph import PipelineGraph
from ml_assets.graph.run_journal import chronicled
from ml_assets.records.loading import open_files
from ml_assets.records.provenance import provenance_of
from ml_assets.records.recalls import sound_champion
from ml_assets.records.tracking.mlflow import Tracking, Unavailable
from ml_assets.records.tracking.projection import project_stages
from ml_assets.resources.objects import ObjectsResource
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.resources.tracking import TrackingResource
from ml_assets.spec.records import Evidence, LedgerEntry
from ml_assets.store.layout import Address
from ml_assets.store.objects import LocalObjects
from ml_assets.store.snapshots import CommitId, SnapshotStore


def released_model(graph: PipelineGraph) -> dg.AssetsDefinition:
    """The released_model asset of a pipeline."""
    spec = graph.spec

    @graph.asset(
        STAGE,
        description=f"The model in `{spec.release.entrance}`. It verifies the decision in the"
        " ledger against the evidence as it is now, whatever path led here, and fails closed.",
        kinds={"mlflow"},
        deps=[graph.key("trained_model"), graph.key("evaluation_report")],
    )
    @chronicled(graph, STAGE)
    def materialize(
        context: dg.AssetExecutionContext,
        snapshots: SnapshotsResource,
        objects: ObjectsResource,
        tracking: TrackingResource,
    ) -> dg.MaterializeResult:
        store = snapshots.store()
        base = resolve_base(context, store)
        model = require_record(store, base, Address(graph.name, "trained_model"))
        outcome = release(
            store,
            graph.name,
            lambda entries: evidence_to_release(graph, store, objects.store(), base, entries),
            spec.release,
            author=spec.owner,
            run=context.run_id,
        )
        if isinstance(outcome, Refused):
            raise EvidenceError(
                f"{graph.name}: model {model.data_version[:12]} is not released.\n"
                + "\n".join(f"  {reason}" for reason in outcome.reasons)
            )
        again = isinstance(outcome, AlreadyReleased)
        context.log.info(
            f"{'already' if again else 'now'} in {outcome.entry.stage}: {model.data_version[:12]}"
        )
        project(context.log, store, tracking.tracking(), graph.name)
        shown = show_release(graph, store, base, outcome.entry, context.run_id)
        return dg.MaterializeResult(metadata=shown.metadata, data_version=shown.data_version)

    return materialize


def current_evidence(
    graph: PipelineGraph, store: SnapshotStore, base: CommitId, entries: Sequence[LedgerEntry]
) -> Evidence:
    """The evidence as it is now: what a decision must be about to count.

    Raises:
        EvidenceError: the report is about another model than the one to release.
    """
    model = require_record(store, base, Address(graph.name, "trained_model"))
    report = require_record(store, base, Address(graph.name, "evaluation_report"))
    judged = [i.version for i in report.inputs if i.key == model.key]
    if judged != [model.data_version]:
        raise EvidenceError(
            f"{report.key} is about model {', '.join(v[:12] for v in judged) or 'none'}, but"
            f" {model.key} is {model.data_version[:12]}. Materialize {report.key} and its gates."
        )
    return Evidence(
        model=model.data_version,
        report=report.data_version,
        data=model.attributes["data"]["digest"],
        code=model.code_version,
        policy=policy_digest(graph.spec.gates, graph.spec.release),
        champion=sound_champion(store, base, graph.name, entries, graph.spec.release.to),
    )


def evidence_to_release(
    graph: PipelineGraph,
    store: SnapshotStore,
    objects: LocalObjects,
    base: CommitId,
    entries: Sequence[LedgerEntry],
) -> Evidence:
    """The evidence as it is now, about files that are what was judged.

    Raises:
        StorageError: a file of the model was changed or lost since.
        EvidenceError: see ``current_evidence``; or what is behind it was read elsewhere, or made by
            other code, than spec, code and settings of here say.
    """
    evidence = current_evidence(graph, store, base, entries)
    provenance_of(store, base, graph.name, evidence)
    require_made_here(graph, store, base)
    open_files(objects, graph.name, evidence.model)
    return evidence


def project(
    log: dg.DagsterLogManager, store: SnapshotStore, tracking: Tracking, pipeline: str
) -> None:
    """Show the ledger's stages in MLflow; a dead server is a warning, never a failure."""
    done = project_stages(store, tracking, pipeline)
    if isinstance(done, Unavailable):
        log.warning(f"MLflow is behind, the next command repairs it: {done.reason}")
