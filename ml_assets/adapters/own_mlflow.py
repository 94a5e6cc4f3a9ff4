"""``dagster-mlflow`` for teams' own assets: one MLflow run for each Dagster run, ended with it.

Our own assets write to MLflow through ``records.tracking`` instead, which no dead server stops.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from ml_assets.errors import SettingsError
from ml_assets.records.tracking.mlflow_server import Server, configure
from ml_assets.settings import read_settings

INSTALL = 'python -m pip install "ml_assets[mlflow]"'


def own_mlflow(context: dg.InitResourceContext) -> Iterator[Any]:
    """The ``mlflow`` of dagster-mlflow, on the server of the settings, imported when asked for.

    The experiment is the pipeline, by the first part of the assets' keys, with ``-own`` behind it.

    Raises:
        SettingsError: the package is not installed.
    """
    configure()  # before mlflow is imported: no telemetry, few retries
    try:
        from dagster_mlflow.resources import MlFlow
    except ImportError as error:
        raise SettingsError(
            "An asset asks for the resource 'mlflow', and dagster-mlflow is not installed:"
            f" {INSTALL}"
        ) from error
    settings = read_settings()
    Server(settings.tracking_uri, settings.home).client()  # makes a new database under a lock
    run = context.dagster_run
    keys = sorted(key.path[0] for key in (run.asset_selection if run else None) or ())
    asked = {
        "experiment_name": f"{keys[0] if keys else 'ml_assets'}-own",
        "mlflow_tracking_uri": settings.tracking_uri,
    }
    mlflow: Any = MlFlow(context.replace_config(asked))
    status = "FAILED"
    try:
        yield mlflow
        status = "FINISHED"
    finally:
        # its own clean-up ends failed runs only, and leaves the others RUNNING
        failed = run is not None and _failed(context, run.run_id)
        mlflow.end_run(status="FAILED" if failed else status)


def _failed(context: dg.InitResourceContext, run_id: str) -> bool:
    """Whether a step failed: the resource is torn down the same way after it."""
    if context.instance is None:
        return False
    kind = dg.DagsterEventType.STEP_FAILURE
    return bool(context.instance.all_logs(run_id, of_type=kind))
