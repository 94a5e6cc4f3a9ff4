"""A team's own asset logs through dagster-mlflow, to a real server, and its run is ended."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.definitions import build
from ml_assets.records.tracking.mlflow_server import Server
from ml_assets.settings import read_settings
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.mlflow_process import MlflowProcess

ASSETS = """\
import dagster as dg


@dg.asset(key=["irises", "review"], required_resource_keys={"mlflow"})
def review(context: dg.AssetExecutionContext) -> None:
    context.resources.mlflow.log_metric("agreed", 0.97)


@dg.asset(key=["irises", "doubt"], required_resource_keys={"mlflow"})
def doubt(context: dg.AssetExecutionContext) -> None:
    context.resources.mlflow.log_metric("agreed", 0.5)
    raise ValueError("nobody agreed")
"""


@pytest.mark.timeout(300)
def test_what_a_teams_asset_logs_is_in_a_run_that_ends_as_the_asset_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    irises.plant(tmp_path / "pipelines", tmp_path / "sources")
    (tmp_path / "pipelines" / "irises" / "assets.py").write_text(ASSETS)
    server = MlflowProcess(tmp_path / "server")
    server.start()
    try:
        monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
        monkeypatch.setenv("ML_ASSETS_SOURCES", str(tmp_path / "sources"))
        monkeypatch.setenv("ML_ASSETS_PIPELINES", str(tmp_path / "pipelines"))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
        repository = build(read_settings()).get_repository_def()
        ended = {name: _materialized(repository, name) for name in ("review", "doubt")}
        client = Server(server.uri, tmp_path / "state").client()
        experiment = client.get_experiment_by_name("irises-own")
        assert experiment is not None
        runs = client.search_runs([experiment.experiment_id])
        found = {run.data.tags["dagster_run_id"]: run for run in runs}
        for name, status, value in (("review", "FINISHED", 0.97), ("doubt", "FAILED", 0.5)):
            run = found[ended[name]]
            assert run.info.status == status
            assert run.data.metrics["agreed"] == value
    finally:
        server.kill()


def test_the_definitions_load_without_importing_it() -> None:
    program = "import sys, ml_assets.definitions; sys.exit('dagster_mlflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def _materialized(repository: dg.RepositoryDefinition, name: str) -> str:
    """Materialize one asset in this process; the Dagster run's id."""
    job = repository.get_job("__ASSET_JOB")
    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey(["irises", name])],
            raise_on_error=False,
        )
    return done.run_id
