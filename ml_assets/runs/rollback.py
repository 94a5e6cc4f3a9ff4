"""A rollback from the command line: it builds no definitions and holds no lock of the folder."""

import dagster as dg

from ml_assets.assets.graph import PipelineGraph
from ml_assets.assets.rolled_back import rolled_back
from ml_assets.operations.rollback import Asked, Returned, Tell, return_to
from ml_assets.operations.workplace import open_pipeline
from ml_assets.registry.tracking.mlflow import Tracking
from ml_assets.settings import Settings


def roll_back(pipeline: str, asked: Asked, settings: Settings, tell: Tell) -> Returned:
    """Roll a pipeline back, and tell Dagster what is in its stage now.

    Raises:
        EvidenceError: there is nothing to go back to, or somebody else was first.
        MlAssetsError: the model cannot serve; nothing was moved.
    """
    place = open_pipeline(pipeline, settings)
    tracking = Tracking(settings.tracking_uri, settings.home)
    returned = return_to(place, tracking, asked, tell)
    graph = PipelineGraph(place.spec, place.folder)
    with dg.DagsterInstance.get() as instance:
        instance.report_runless_asset_event(rolled_back(graph, place.store, returned))
    return returned
