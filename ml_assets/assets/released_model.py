"""released_model: the move to a stage, refused unless the evidence itself says yes."""

from collections.abc import Sequence

import dagster as dg

from ml_assets.assets.graph import PipelineGraph
from ml_assets.assets.inputs import require_record, resolve_base
from ml_assets.assets.last_release import read_changes, read_report
from ml_assets.assets.metadata import model_links, pictures, record_metadata
from ml_assets.assets.publish import Draft, Work, input_version
from ml_assets.errors import EvidenceError
from ml_assets.evaluation.gate import policy_digest
from ml_assets.pictures.picture import Picture, Table
from ml_assets.pictures.release import (
    changes_table,
    decisions_picture,
    gates_picture,
    gates_table,
    ledger_table,
    released_table,
)
from ml_assets.registry.ledger import champion, latest_decision, read, stages
from ml_assets.registry.links import Links
from ml_assets.registry.loading import open_files
from ml_assets.registry.mlflow import Tracking, Unavailable
from ml_assets.registry.promote import AlreadyReleased, Refused, release
from ml_assets.resources.objects import ObjectsResource
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.resources.tracking import TrackingResource
from ml_assets.spec.records import Evidence, LedgerEntry, StageRecord
from ml_assets.storage.layout import Address
from ml_assets.storage.objects import LocalObjects
from ml_assets.storage.snapshots import CommitId, SnapshotStore

STAGE = "released_model"


def released_model(graph: PipelineGraph) -> dg.AssetsDefinition:
    """The released_model asset of a pipeline."""
    spec = graph.spec
    code_version = graph.code_version(STAGE)

    @graph.asset(
        STAGE,
        description=f"The model in `{spec.release.to}`. It verifies the decision in the ledger"
        " against the evidence as it is now, whatever path led here, and fails closed.",
        kinds={"mlflow"},
        deps=[graph.key("trained_model"), graph.key("evaluation_report")],
    )
    def materialize(
        context: dg.AssetExecutionContext,
        snapshots: SnapshotsResource,
        objects: ObjectsResource,
        tracking: TrackingResource,
    ) -> dg.MaterializeResult:
        store = snapshots.store()
        base = resolve_base(context, store)
        model = require_record(store, base, Address(graph.name, "trained_model"))
        report = require_record(store, base, Address(graph.name, "evaluation_report"))
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
        since = "already" if isinstance(outcome, AlreadyReleased) else "now"
        context.log.info(f"{since} in {spec.release.to}: {model.data_version[:12]}")
        project_stages(context, graph, store, tracking.tracking(), model)
        inputs = (input_version(model, base), input_version(report, base))
        work = Work(Address(graph.name, STAGE), code_version, inputs, context.run_id)
        with Draft(store, work, store.resolve("main")) as draft:
            published = draft.publish(
                attributes=_attributes(outcome.entry, model), data_version=model.data_version
            )
        return dg.MaterializeResult(
            metadata={
                **pictures(_shown(graph, store, base, outcome.entry)),
                **record_metadata(published),
                "stage": spec.release.to,
                **model_links(graph.name, model),
                "mlflow_model": dg.MetadataValue.url(Links.of().registered_model(graph.name)),
                "ledger_line": outcome.entry.seq,
                "reason": outcome.entry.reason,
                "dagster/uri": model.attributes["model"]["uri"],
            },
            data_version=dg.DataVersion(model.data_version),
        )

    return materialize


def _shown(
    graph: PipelineGraph, store: SnapshotStore, base: CommitId, move: LedgerEntry
) -> list[Picture | Table]:
    """What was released, by which gates, what it changes, and what came before."""
    entries = read(store, graph.name)
    decision = latest_decision(entries, move.model)
    gates = decision.gates if decision else ()
    record = require_record(store, base, Address(graph.name, "evaluation_report"))
    return [
        released_table(read_report(store, base, graph.name), graph.spec, move.replaced),
        *gates_picture(gates, graph.spec.gates),
        gates_table(gates),
        changes_table(read_changes(record)),
        *decisions_picture(entries, graph.spec.gates),
        ledger_table(entries),
    ]


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
        champion=champion(entries, graph.spec.release.to),
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
        EvidenceError: see ``current_evidence``.
    """
    evidence = current_evidence(graph, store, base, entries)
    open_files(objects, graph.name, evidence.model)
    return evidence


def project_stages(
    context: dg.AssetExecutionContext,
    graph: PipelineGraph,
    store: SnapshotStore,
    tracking: Tracking,
    model: StageRecord,
) -> None:
    """Copy the ledger's stages to MLflow's aliases; a dead server is a warning, never a failure."""
    for done in (
        tracking.link_model(
            graph.name,
            model.data_version,
            model.attributes["model"]["uri"],
            model.attributes["session"],
            model.attributes["mlflow_run"],
        ),
        tracking.set_stage_aliases(graph.name, lambda: stages(read(store, graph.name))),
    ):
        if isinstance(done, Unavailable):
            context.log.warning(f"MLflow is behind, the next release repairs it: {done.reason}")


def _attributes(entry: LedgerEntry, model: StageRecord) -> dict[str, object]:
    return {
        "stage": entry.stage,
        "seq": entry.seq,
        "model": model.attributes["model"],
        "session": model.attributes["session"],
    }
