"""Finishes what a killed command left undone after the ledger: MLflow is updated again."""

from ml_assets.records.tracking.mlflow import Tracking, Unavailable
from ml_assets.records.tracking.projection import is_behind, project_stages
from ml_assets.settings import Settings
from ml_assets.store.snapshots import SnapshotStore


def repair_projection(store: SnapshotStore, settings: Settings, pipeline: str) -> str:
    """Tell MLflow of moves that it was not told of, and say so; empty where it knows them all.

    Raises:
        StorageError: the ledger is broken.
    """
    if not is_behind(store, settings.home, pipeline):
        return ""
    done = project_stages(store, Tracking(settings.tracking_uri, settings.home), pipeline)
    if isinstance(done, Unavailable):
        return f"MLflow still shows older stages of {pipeline}: {done.reason}"
    return f"MLflow was told the stages of {pipeline}, which it did not know yet"
