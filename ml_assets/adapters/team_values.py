"""Keeps the values that teams' own assets return, for their downstream assets; ours return none.

Values are data: plain values as JSON, frames as Parquet. Dagster would write a pickle, which runs
code when it is read, and anyone who can write the state folder could put one there. A team's asset
may ask for an MLflow run, too.
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dagster as dg
from upath import UPath

from ml_assets.errors import SettingsError, SpecError, StorageError, install
from ml_assets.records.tracking.mlflow_server import Server, configure
from ml_assets.settings import read_settings
from ml_assets.store.objects import write_whole

if TYPE_CHECKING:
    import polars as pl

_PARQUET = b"PAR1"


class TeamValues(dg.UPathIOManager):
    """One file for each value, below a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(base_path=UPath(folder))

    def make_safe_partition_path(self, base_path: UPath, partition: str) -> UPath:
        """A name below the asset's own, whatever a run calls its partition."""
        return base_path / quote(partition, safe="").replace(".", "%2e")

    def dump_to_path(self, context: dg.OutputContext, obj: Any, path: UPath) -> None:
        """Write a value whole.

        Raises:
            SpecError: it is neither a frame nor what JSON gives back as it was.
        """
        file = Path(path.path)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, _as_bytes(obj, context.step_key))

    def load_from_path(self, context: dg.InputContext, path: UPath) -> Any:
        """Read a value.

        Raises:
            StorageError: the file holds none.
        """
        content = Path(path.path).read_bytes()
        try:
            return _frame(content) if content.startswith(_PARQUET) else json.loads(content)
        except (ValueError, OSError, RecursionError) as error:
            raise StorageError(
                f"{path} holds no value of an asset: {error}. Make the asset again that returns it."
            ) from error


def _as_bytes(value: Any, step: str) -> bytes:
    if type(value).__module__.split(".")[0] == "polars" and hasattr(value, "write_parquet"):
        buffer = io.BytesIO()
        value.write_parquet(buffer)
        return buffer.getvalue()
    try:
        text = json.dumps(value, allow_nan=False)
        same = json.loads(text) == value
    except (TypeError, ValueError, RecursionError):
        text, same = "", False
    if not same:
        raise SpecError(
            f"{step} returns a {type(value).__name__} that cannot be kept for other assets: only "
            "a polars frame can, or what JSON can hold (text, numbers, lists, dictionaries of "
            "them). Nothing is pickled. Return one of these, or write a file and return nothing."
        )
    return text.encode()


def _frame(content: bytes) -> "pl.DataFrame":
    import polars as pl
    import pyarrow.parquet as pq

    return pl.DataFrame(pl.from_arrow(pq.read_table(io.BytesIO(content))))


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
            f" {install('mlflow')}"
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
