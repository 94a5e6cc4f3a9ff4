"""The production dagster.yaml: loaded as Dagster loads it, on a real Postgres and a real S3."""

import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import pytest
import yaml
from dagster._config import process_config, resolve_to_config_type

from ml_assets.adapters.executor import MOST_STEPS
from ml_assets.automation.housekeeping.run_logs import delete
from ml_assets_tests.conftest import Cli
from ml_assets_tests.servers.postgres import postgres
from ml_assets_tests.servers.s3 import BUCKET, S3Server, s3_server

DAGSTER = Path(__file__).parents[2] / "deploy" / "dagster"
CONFIGURATION = yaml.safe_load((DAGSTER / "dagster.yaml").read_text())
QUOTA = next(yaml.safe_load_all((DAGSTER.parent / "base" / "quota.yaml").read_text()))
REGION = "eu-central-1"
SHORTEST_RUN_SECONDS = 120
"""Of a run whose steps are Jobs: each pod starts and imports Dagster."""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    pytest.importorskip("dagster_postgres", reason="pip install '.[cluster]'")
    with postgres() as url:
        yield url


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):  # the settings of the base give one
        monkeypatch.delenv(name, raising=False)
    with s3_server(monkeypatch) as server:
        yield server


@pytest.fixture
def instance(
    database: str, bucket: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dg.DagsterInstance]:
    """The instance of production, as its pods make it from their environment."""
    place = urlsplit(database)
    settings = yaml.safe_load((DAGSTER.parent / "base" / "settings.yaml").read_text())["data"]
    named = {
        **{name: REGION for name in settings if name.startswith("AWS_")},
        "DAGSTER_HOME": str(tmp_path),
        "DAGSTER_PG_HOST": place.hostname,
        "DAGSTER_PG_PORT": str(place.port),
        "DAGSTER_PG_DB": place.path.strip("/"),
        "DAGSTER_PG_USERNAME": place.username,
        "DAGSTER_PG_PASSWORD": place.password,
        "DAGSTER_LOG_BUCKET": BUCKET,
        "DAGSTER_LOG_PREFIX": "dagster",
        "ML_ASSETS_NAMESPACE": "ml-assets",
    }
    for name, value in named.items():
        monkeypatch.setenv(name, str(value))
    shutil.copy(DAGSTER / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as found:
        yield found


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["a", "b"]))
def numbers() -> dg.MaterializeResult:
    print("what the step prints")
    return dg.MaterializeResult(metadata={"rows": 3}, data_version=dg.DataVersion("one"))


@dg.asset_check(asset=numbers)
def rows() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True, metadata={"rows": 3})


def run(instance: dg.DagsterInstance) -> str:
    return dg.materialize([numbers, rows], instance=instance, partition_key="a").run_id


def test_a_run_is_kept_in_postgres_and_read_back(instance: dg.DagsterInstance) -> None:
    assert type(instance.event_log_storage).__name__ == "PostgresEventLogStorage"
    run_id = run(instance)

    with dg.DagsterInstance.from_ref(instance.get_ref()) as again:
        stored = again.get_run_by_id(run_id)
        assert stored is not None
        assert stored.status is dg.DagsterRunStatus.SUCCESS
        event = again.get_latest_materialization_event(numbers.key)
        assert event is not None
        assert event.asset_materialization is not None
        assert event.asset_materialization.tags["dagster/data_version"] == "one"
        (check,) = again.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(numbers.key, "rows"), limit=2
        )
        assert check.evaluation is not None
        assert check.evaluation.passed


def test_a_command_in_a_pod_reads_the_runs_of_the_services(
    instance: dg.DagsterInstance, tmp_path: Path, cli: Cli
) -> None:
    with pytest.MonkeyPatch.context() as pod:
        pod.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
        run_id = run(instance)
        pod.setenv("DAGSTER_HOME", str(tmp_path))  # the command sets it for those it starts
        said = cli("ops", "logs", "latest").out
        assert "what the step prints" in said and said.endswith(f"run {run_id}: SUCCESS\n")
        pod.setenv("DAGSTER_HOME", str(tmp_path / "empty"))
        assert "There is no run yet." in cli("ops", "logs", "latest", code=1).err


def test_what_a_run_prints_is_kept_on_s3(instance: dg.DagsterInstance, bucket: S3Server) -> None:
    run_id = run(instance)
    (out,) = [key for key in bucket.everything() if run_id in key and key.endswith(".out")]
    assert out.startswith("dagster/storage/")
    content = bucket.client.get_object(Bucket=BUCKET, Key=out)["Body"].read()
    assert b"what the step prints" in content


def test_logs_are_kept_in_the_region_of_the_settings(instance: dg.DagsterInstance) -> None:
    manager = instance.compute_log_manager
    client = manager._s3_session  # pyright: ignore[reportAttributeAccessIssue]
    assert client.meta.region_name == REGION


def test_house_keeping_deletes_there_too(instance: dg.DagsterInstance, bucket: S3Server) -> None:
    run_id = run(instance)
    assert [key for key in bucket.everything() if run_id in key]

    delete(instance, run_id)

    assert [key for key in bucket.everything() if run_id in key] == []


def test_only_a_crash_is_run_again_and_a_pool_holds_whole_runs(
    instance: dg.DagsterInstance,
) -> None:
    assert instance.run_retries_enabled
    assert instance.run_retries_retry_on_asset_or_op_failure is False
    assert instance.run_monitoring_enabled
    concurrency = instance.get_concurrency_config()
    assert str(concurrency.pool_config.pool_granularity).endswith("RUN")
    assert concurrency.pool_config.default_pool_limit == 1
    assert instance.telemetry_enabled is False


def test_finished_runs_leave_room_for_the_jobs_of_those_to_come() -> None:
    """The quota counts a Job until its time is over: beyond it no run starts, and no training."""
    runs = CONFIGURATION["concurrency"]["runs"]["max_concurrent_runs"]
    jobs = CONFIGURATION["run_launcher"]["config"]["run_k8s_config"]["job_spec_config"]
    rounds = 1 + jobs["ttl_seconds_after_finished"] / SHORTEST_RUN_SECONDS
    most = int(QUOTA["spec"]["hard"]["count/jobs.batch"])
    assert runs * (1 + MOST_STEPS) * rounds <= most


def test_the_pool_of_gpus_has_the_limit_that_was_set(instance: dg.DagsterInstance) -> None:
    instance.event_log_storage.set_concurrency_slots("gpu", 8)
    (gpu,) = [pool for pool in instance.event_log_storage.get_pool_limits() if pool.name == "gpu"]
    assert gpu.limit == 8


@pytest.mark.parametrize("part", ["run_launcher", "compute_logs"])
def test_the_classes_that_it_names_take_their_configuration(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dagster_k8s", reason="pip install '.[cluster]'")
    for name in ("ML_ASSETS_NAMESPACE", "DAGSTER_LOG_BUCKET", "DAGSTER_LOG_PREFIX"):
        monkeypatch.setenv(name, "ml-assets")
    found = taken(CONFIGURATION[part])
    assert found.success, found.errors


def test_a_wrong_key_of_theirs_is_refused() -> None:
    pytest.importorskip("dagster_k8s", reason="pip install '.[cluster]'")
    launcher = CONFIGURATION["run_launcher"]
    spoiled = {**launcher, "config": {**launcher["config"], "job_name_space": "ml-assets"}}
    assert not taken(spoiled).success


def taken(part: dict[str, Any]) -> Any:
    """What Dagster's own schema of a configurable class says to a configuration."""
    named = getattr(importlib.import_module(part["module"]), part["class"])
    return process_config(resolve_to_config_type(named.config_type()), part["config"])
