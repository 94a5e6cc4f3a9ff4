"""released_model: the move to a stage, refused unless the evidence itself says yes."""

from collections.abc import Sequence

import dagster as dg

from ml_assets.adapters.declared import asset_key, stage_asset
from ml_assets.adapters.run_journal import chronicled
from ml_assets.adapters.stores import StoresResource
from ml_assets.assets.released_model.gates.decide import policy_digest
from ml_assets.assets.released_model.origins import require_made_here
from ml_assets.assets.released_model.page import STAGE, show_release
from ml_assets.assets.released_model.promote import AlreadyReleased, Refused, release
from ml_assets.errors import EvidenceError
from ml_assets.graph.inputs import require_record
from ml_assets.records.loading import open_files
from ml_assets.records.provenance import provenance_of
from ml_assets.records.recalls import sound_champion
from ml_assets.records.tracking.mlflow import Tracking, Unavailable
from ml_assets.records.tracking.projection import project_stages
from ml_assets.spec.records import Evidence, LedgerEntry
from ml_assets.store.pipeline_context import Pipeline, PipelineState
from ml_assets.store.snapshots import SnapshotStore


def released_model(declared: Pipeline) -> dg.AssetsDefinition:
    """The released_model asset of a pipeline."""
    spec = declared.spec

    @stage_asset(
        declared,
        STAGE,
        description=f"The model in `{spec.release.entrance}`. It verifies the decision in the"
        " ledger against the evidence as it is now, whatever path led here, and fails closed.",
        kinds={"mlflow"},
        deps=[asset_key(declared, "trained_model"), asset_key(declared, "evaluation_report")],
    )
    @chronicled(declared, STAGE)
    def materialize(
        context: dg.AssetExecutionContext,
        stores: StoresResource,
    ) -> dg.MaterializeResult:
        pipeline = stores.open(declared, keeps_objects=True)
        base = pipeline.store.resolve("main")
        model = require_record(pipeline.at(base), pipeline.address("trained_model"))
        outcome = release(
            pipeline.store,
            pipeline.name,
            lambda entries: evidence_to_release(pipeline.at(base), entries),
            spec.release,
            author=spec.owner,
            run=context.run_id,
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
        shown = show_release(pipeline.at(base), outcome.entry, context.run_id)
        return dg.MaterializeResult(
            metadata=shown.metadata, data_version=dg.DataVersion(shown.data_version)
        )

    return materialize


def current_evidence(state: PipelineState, entries: Sequence[LedgerEntry]) -> Evidence:
    """The evidence as it is now: what a decision must be about to count.

    Raises:
        EvidenceError: the report is about another model than the one to release.
    """
    model = require_record(state, state.address("trained_model"))
    report = require_record(state, state.address("evaluation_report"))
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
        policy=policy_digest(state.spec.gates, state.spec.release),
        champion=sound_champion(
            state.store, state.commit, state.name, entries, state.spec.release.to
        ),
    )


def evidence_to_release(
    state: PipelineState,
    entries: Sequence[LedgerEntry],
) -> Evidence:
    """The evidence as it is now, about files that are what was judged.

    Raises:
        StorageError: a file of the model was changed or lost since.
        EvidenceError: see ``current_evidence``; or what is behind it was read elsewhere, or made by
            other code, than spec, code and settings of here say.
    """
    evidence = current_evidence(state, entries)
    provenance_of(state, evidence)
    require_made_here(state)
    open_files(state.objects, state.name, evidence.model)
    return evidence


def project(
    log: dg.DagsterLogManager, store: SnapshotStore, tracking: Tracking, pipeline: str
) -> None:
    """Show the ledger's stages in MLflow; a dead server is a warning, never a failure."""
    done = project_stages(store, tracking, pipeline)
    if isinstance(done, Unavailable):
        log.warning(f"MLflow is behind, the next command repairs it: {done.reason}")
