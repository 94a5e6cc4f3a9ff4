"""Rolls back from the command line, without building definitions or locking the state folder."""

from ml_assets.adapters.runs import open_instance
from ml_assets.assets.released_model.page import rolled_back
from ml_assets.assets.released_model.rollback import (
    Returned,
    RollbackRequest,
    Tell,
    return_to,
)
from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.settings import Settings
from ml_assets.store.pipeline_context import open_pipeline


def roll_back(pipeline: str, asked: RollbackRequest, settings: Settings, tell: Tell) -> Returned:
    """Roll a pipeline back, and tell Dagster what is in its stage now.

    Raises:
        NothingReleased: there is nothing to go back to.
        EvidenceError: the named model was never released, or somebody else was first.
        MlAssetsError: the model cannot serve; nothing was moved.
    """
    tell(f"the ledger of {pipeline} is read")
    opened = open_pipeline(pipeline, settings)
    tracking = Tracking.of(settings)
    returned = return_to(opened, tracking, asked, tell)
    with open_instance() as instance:
        instance.report_runless_asset_event(rolled_back(opened, returned))
    return returned
