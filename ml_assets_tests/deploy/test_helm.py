"""The values for Dagster's Helm chart: keys that it has, and what our own dagster.yaml says.

The chart itself is not here, but a model of its templates (``chart.py``). The workflow of CI
renders it, which holds the values to its schema, and looks there for the queue and for rights.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from ml_assets_tests.deploy import chart
from ml_assets_tests.deploy.test_manifests import built as kustomized
from ml_assets_tests.deploy.test_manifests import named

DEPLOY = Path(__file__).parents[2] / "deploy"
VALUES = chart.VALUES
INSTANCE = yaml.safe_load((DEPLOY / "dagster" / "dagster.yaml").read_text())
LAUNCHER = INSTANCE["run_launcher"]["config"]
CODE = chart.CODE

POD = "image envConfigMaps envSecrets labels podSecurityContext securityContext resources"
POD += " volumes volumeMounts env annotations nodeSelector affinity tolerations"
POD += " checkDbReadyInitContainer"
KEYS: dict[str, str] = {
    "": "global serviceAccount rbacEnabled dagster-user-deployments dagsterWebserver dagsterDaemon"
    " postgresql generatePostgresqlPasswordSecret computeLogManager runLauncher retention telemetry"
    " busybox additionalInstanceConfig",
    "global": "postgresqlSecretName dagsterHome serviceAccountName",
    "dagster-user-deployments": "enabled enableSubchart imagePullSecrets serviceAccount rbacEnabled"
    " deployments",
    "dagsterDaemon.runCoordinator": "enabled type config",
    "dagsterWebserver": f"{POD} replicaCount service enableReadOnly nameOverride readinessProbe",
    "dagsterDaemon": f"{POD} enabled runCoordinator runMonitoring runRetries heartbeatTolerance"
    " sensors schedules",
    "dagsterDaemon.sensors": "useThreads numWorkers numSubmitWorkers",
    "postgresql": "enabled postgresqlHost postgresqlUsername postgresqlDatabase postgresqlScheme"
    " postgresqlParams service",
    "computeLogManager.config.s3ComputeLogManager": "bucket prefix skipEmptyFiles uploadInterval"
    " endpointUrl region showUrlOnly",
    "runLauncher": "type config",
    "runLauncher.config.customRunLauncher": "module class config",
    "retention": "enabled sensor schedule autoMaterialize",
}
"""Of each part the keys of the chart's schema, as read in helm/dagster/schema of its source."""
DEPLOYMENT = f"{POD} name port dagsterApiGrpcArgs codeServerArgs includeConfigInLaunchedRuns"


def at(values: dict[str, Any], path: str) -> dict[str, Any]:
    for part in filter(None, path.split(".")):
        values = values[part]
    return values


@pytest.mark.parametrize(("path", "known"), KEYS.items())
def test_every_key_is_one_of_the_charts(path: str, known: str) -> None:
    assert set(at(VALUES, path)) <= set(known.split())


def test_so_are_those_of_the_code_location() -> None:
    assert set(CODE) <= set(DEPLOYMENT.split())


def test_what_the_chart_has_no_value_for_is_word_for_word_ours() -> None:
    extra = VALUES["additionalInstanceConfig"]
    assert extra == {part: INSTANCE[part] for part in extra}
    assert set(extra) == {"concurrency", "run_retries", "nux"}


def test_runs_wait_in_dagsters_queue_with_our_limits(tmp_path: Path) -> None:
    """Dagster itself is asked, with what the chart writes and with what we write without it."""
    parts = {part: INSTANCE[part] for part in VALUES["additionalInstanceConfig"]}
    with loaded(chart.instance(), tmp_path / "theirs") as theirs:
        with loaded(parts, tmp_path / "ours") as ours:
            assert theirs.get_required_daemon_types() == ours.get_required_daemon_types()
            limits = ours.get_concurrency_config()
        assert theirs.get_concurrency_config() == limits
    assert limits.run_queue_config is not None
    assert limits.run_queue_config.max_concurrent_runs == 50


def loaded(instance: dict[str, Any], home: Path) -> dg.DagsterInstance:
    home.mkdir()
    (home / "dagster.yaml").write_text(yaml.safe_dump(instance))
    return dg.DagsterInstance.from_config(str(home))


def test_the_chart_adds_no_rights_and_no_accounts() -> None:
    """What the orchestrator may do is in ../base and nowhere else."""
    assert {one["kind"] for one in chart.made()} == {"Deployment", "Service"}
    assert VALUES["serviceAccount"]["create"] is False
    assert VALUES["global"]["serviceAccountName"]  # with it the chart within makes none either


def test_the_run_launcher_is_ours() -> None:
    """And so is what a run may say about its pod, for which the chart's own type has no value."""
    said = VALUES["runLauncher"]
    password = {"postgres_password_secret": VALUES["global"]["postgresqlSecretName"]}
    ours = INSTANCE["run_launcher"] | {"config": LAUNCHER | password}
    assert said == {"type": "CustomRunLauncher", "config": {"customRunLauncher": ours}}
    assert LAUNCHER["instance_config_map"] == f"{chart.RELEASE}-instance"
    assert LAUNCHER["dagster_home"] == VALUES["global"]["dagsterHome"]


def test_storage_logs_monitoring_and_retention_are_ours() -> None:
    logs = INSTANCE["compute_logs"]["config"]
    theirs = VALUES["computeLogManager"]["config"]["s3ComputeLogManager"]
    assert theirs == {
        "bucket": logs["bucket"],
        "prefix": logs["prefix"],
        "skipEmptyFiles": logs["skip_empty_files"],
        "uploadInterval": logs["upload_interval"],
    }
    postgres = INSTANCE["storage"]["postgres"]["postgres_db"]
    assert VALUES["postgresql"]["postgresqlScheme"] == postgres["scheme"]
    monitoring = INSTANCE["run_monitoring"]
    assert VALUES["dagsterDaemon"]["runMonitoring"] == {
        "enabled": monitoring["enabled"],
        "startTimeoutSeconds": monitoring["start_timeout_seconds"],
        "cancelTimeoutSeconds": monitoring["cancel_timeout_seconds"],
        "maxResumeRunAttempts": monitoring["max_resume_run_attempts"],
        "pollIntervalSeconds": monitoring["poll_interval_seconds"],
    }
    threads = INSTANCE.get("sensors", {}).get("use_threads", False)
    assert VALUES["dagsterDaemon"]["sensors"]["useThreads"] == threads, "one tick after the other"
    for kind in ("schedule", "sensor"):
        days = INSTANCE["retention"][kind]["purge_after_days"]
        assert VALUES["retention"][kind]["purgeAfterDays"] == days


def test_each_webserver_of_the_chart_is_behind_a_login_of_its_own() -> None:
    """Readers and operators each have a webserver of the chart's and a login of ours."""
    found = [*kustomized("helm"), *chart.made()]
    for who, server in (
        ("readers", "dagster-webserver-read-only"),
        ("operators", "dagster-webserver"),
    ):
        *_, container = spec(found, f"{who}-login")["containers"]
        assert f"--upstream=http://{server}:3000" in container["args"]
        assert any(arg.startswith("--allowed-group=") for arg in container["args"]) == (
            who == "operators"
        )
        (port,) = named(found, "Service", server)["spec"]["ports"]
        (web,) = spec(found, server)["containers"]
        assert port["port"] == web["ports"][0]["containerPort"] == 3000
        probe = web["readinessProbe"]["httpGet"]
        assert probe["port"] == 3000
        assert probe["httpHeaders"] == [{"name": "Host", "value": "localhost"}]
        assert web["image"].startswith("registry.example.com/ml-assets/orchestrator")
        (way_in,) = named(found, "Service", f"dagster-{who}-ui")["spec"]["ports"]
        assert way_in["targetPort"] == container["ports"][0]["name"]


def test_the_logins_of_the_chart_are_those_without_it() -> None:
    """But for the webserver that they lead to, which is in their pod there."""
    for who in ("readers", "operators"):
        _, *beside = spec(kustomized("overlays/production"), f"dagster-{who}-ui")["containers"]
        alone = spec(kustomized("helm"), f"{who}-login")["containers"]
        assert list(map(without_upstream, alone)) == list(map(without_upstream, beside))


def without_upstream(container: dict[str, Any]) -> dict[str, Any]:
    kept = [arg for arg in container["args"] if "--upstream=http://" not in arg or "3001" in arg]
    return container | {"args": kept}


def spec(found: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    return named(found, "Deployment", name)["spec"]["template"]["spec"]


def test_the_account_and_the_labels_are_those_of_the_base() -> None:
    """The policies of ../base know pods by their labels, its Roles are bound to its account."""
    files = [file for file in (DEPLOY / "base").iterdir() if file.name != "kustomization.yaml"]
    base = [one for file in files for one in yaml.safe_load_all(file.read_text())]
    accounts = {one["metadata"]["name"] for one in base if one["kind"] == "ServiceAccount"}
    assert VALUES["serviceAccount"]["name"] in accounts
    assert VALUES["serviceAccount"]["name"] == VALUES["global"]["serviceAccountName"]
    parts = {CODE["labels"]["ml-assets.io/part"], LAUNCHER["labels"]["ml-assets.io/part"]}
    parts |= {
        VALUES[p]["labels"]["ml-assets.io/part"] for p in ("dagsterWebserver", "dagsterDaemon")
    }
    assert parts == {"code-location", "run", "webserver", "daemon"}
    assert VALUES["global"]["dagsterHome"] == LAUNCHER["dagster_home"]


def test_the_reports_beside_the_chart_have_the_image_that_the_chart_runs() -> None:
    (reports,) = [
        one
        for one in spec(kustomized("helm"), "readers-login")["containers"]
        if one["name"] == "reports"
    ]
    assert reports["image"] == f"{CODE['image']['repository']}:{CODE['image']['tag']}"
