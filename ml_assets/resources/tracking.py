"""MLflow, as a Dagster resource: links and copies, never the truth."""

import dagster as dg

from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.settings import read_settings


class TrackingResource(dg.ConfigurableResource):
    """The MLflow tracking server; the URI is read when used, for it may hold a password."""

    def tracking(self) -> Tracking:
        settings = read_settings()
        return Tracking(settings.tracking_uri, settings.home)
