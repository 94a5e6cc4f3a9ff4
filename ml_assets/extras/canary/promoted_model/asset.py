"""promoted_model: the move from canary to production, refused unless the canary passed."""

from collections.abc import Sequence

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, stage_asset
from ml_assets.adapters.resources import StoresResource
from ml_assets.assets.released_model.asset import project
from ml_assets.assets.released_model.made_from import require_made_here
from ml_assets.assets.released_model.page import show_release
from ml_assets.assets.released_model.promote import Refused, promote
from ml_assets.errors import EvidenceError
from ml_assets.extras.canary.canary_report.evidence import (
    CANARY_REPORT,
    canary_evidence,
    require_rows,
)
from ml_assets.load_extras import load_extra
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.origin import Origin, find_origin
from ml_assets.records.ledger.stages import (
    champion,
    decision_line,
    override_line,
    stage_line,
)
from ml_assets.records.load_release import open_files
from ml_assets.records.recalls import sound_champion
from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.pipeline_context import Pipeline, PipelineState

STAGE = "promoted_model"


def promoted_model(declared: Pipeline) -> dg.AssetsDefinition:
    """The promoted_model asset of a pipeline that asks for canary evidence."""

    @stage_asset(
        declared,
        STAGE,
        description="The model in `production`. It verifies the decision on the canary "
        "against the present evidence, however the run was started, and fails closed.",
        kinds={"mlflow"},
        deps=[asset_key(declared, CANARY_REPORT)],
    )
    def materialize(
        context: dg.AssetExecutionContext,
        stores: StoresResource,
    ) -> dg.MaterializeResult:
        pipeline = stores.open(declared)
        base = pipeline.store.resolve("main")
        move, origin = move_on(pipeline.at(base), context.run.run_id)
        context.log.info(f"in {move.stage}: {move.model[:12]}, by line {move.seq}")
        project(context.log, pipeline.store, Tracking.of(pipeline.settings), pipeline.name)
        shown = show_release(pipeline.at(origin.commit), move, context.run.run_id, STAGE)
        return dg.MaterializeResult(
            metadata=shown.metadata, data_version=dg.DataVersion(shown.data_version)
        )

    return materialize


def move_on(state: PipelineState, run: str) -> tuple[LedgerEntry, Origin]:
    """Move the model in canary to production; the line, and where the model comes from.

    A promotion that was killed behind its line is there already, and only has to be shown.

    Raises:
        EvidenceError: no model is in canary, or its evidence does not hold, or what is behind it
            was read elsewhere or made by other code, or the gates changed meanwhile.
        StorageError: a file of the model was changed or lost since.
    """
    entries = read(state.store, state.name, state.commit)
    there = stage_line(entries, state.spec.release.to)
    if there is not None and champion(entries, "canary") is None:
        origin = find_origin(state.store, state.name, there.model)
        if origin is not None:
            return there, origin
    rows = require_rows(state)
    _require_traffic(state, entries, rows.model.model.data_version)
    open_files(state.objects, state.name, rows.model.model.data_version)
    require_made_here(state.at(rows.model.commit))
    outcome = promote(
        state.store,
        state.name,
        lambda entries: canary_evidence(state, entries),
        state.spec.release,
        author=state.spec.owner,
        run=run,
    )
    if isinstance(outcome, Refused):
        model = rows.model.model.data_version
        said = "\n".join(f"  {reason}" for reason in outcome.reasons)
        raise EvidenceError(f"{state.name}: model {model[:12]} stays in canary.\n{said}")
    return outcome.entry, rows.model


def _require_traffic(state: PipelineState, entries: Sequence[LedgerEntry], model: str) -> None:
    """Ask again what the traffic says: labels may have come since the decision.

    Raises:
        EvidenceError: the model lost, and nobody overrides the decision on the canary.
    """
    line = decision_line(entries, model, canary=True)
    if state.spec.release.rollout is None or (line and override_line(entries, line)):
        return
    rival = sound_champion(state.store, state.commit, state.name, entries, state.spec.release.to)
    served = load_extra("release.rollout").canary_gate(state, model, rival)
    if not served.passed:
        raise EvidenceError(
            f"{state.name}: model {model[:12]} stays in canary: {served.reason}. Decide on it"
            f" again: ml-assets release promote {state.name}"
        )
