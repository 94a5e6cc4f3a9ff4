"""The values for Dagster's Helm chart: keys that it has, and what our own dagster.yaml says.

The chart itself is not here; the workflow of CI renders it, which holds the values to its schema.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ml_assets_tests.deploy import rules

DEPLOY = Path(__file__).parents[2] / "deploy"
VALUES = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text())
INSTANCE = yaml.safe_load((DEPLOY / "dagster" / "dagster.yaml").read_text())
LAUNCHER = INSTANCE["run_launcher"]["config"]
OURS = VALUES["runLauncher"]["config"]["k8sRunLauncher"]
(CODE,) = VALUES["dagster-user-deployments"]["deployments"]

POD = "image envConfigMaps envSecrets labels podSecurityContext securityContext resources"
POD += " volumes volumeMounts env annotations nodeSelector affinity tolerations"
KEYS: dict[str, str] = {
    "": "global serviceAccount rbacEnabled dagster-user-deployments dagsterWebserver dagsterDaemon"
    " postgresql generatePostgresqlPasswordSecret computeLogManager runLauncher retention telemetry"
    " additionalInstanceConfig",
    "global": "postgresqlSecretName dagsterHome serviceAccountName",
    "dagsterWebserver": f"{POD} replicaCount service enableReadOnly dbPoolRecycle logLevel",
    "dagsterDaemon": f"{POD} enabled runCoordinator runMonitoring runRetries heartbeatTolerance",
    "postgresql": "enabled postgresqlHost postgresqlUsername postgresqlDatabase postgresqlScheme"
    " postgresqlParams service",
    "computeLogManager.config.s3ComputeLogManager": "bucket prefix skipEmptyFiles uploadInterval"
    " endpointUrl region showUrlOnly",
    "runLauncher.config.k8sRunLauncher": "image imagePullPolicy jobNamespace loadInclusterConfig"
    " envConfigMaps envSecrets envVars volumeMounts volumes labels failPodOnRunFailure resources"
    " schedulerName securityContext runK8sConfig",
    "retention": "enabled sensor schedule autoMaterialize",
}
"""Of each part the keys of the chart's schema, as read in helm/dagster/schema of its source."""
DEPLOYMENT = f"{POD} name port dagsterApiGrpcArgs codeServerArgs includeConfigInLaunchedRuns"
RUN = "containerConfig podSpecConfig podTemplateSpecMetadata jobSpecConfig jobMetadata"


def at(values: dict[str, Any], path: str) -> dict[str, Any]:
    for part in filter(None, path.split(".")):
        values = values[part]
    return values


@pytest.mark.parametrize(("path", "known"), KEYS.items())
def test_every_key_is_one_of_the_charts(path: str, known: str) -> None:
    assert set(at(VALUES, path)) <= set(known.split())


def test_so_are_those_of_the_code_location_and_of_runs() -> None:
    assert set(CODE) <= set(DEPLOYMENT.split())
    assert set(OURS["runK8sConfig"]) <= set(RUN.split())


def test_what_the_chart_has_no_value_for_is_word_for_word_ours() -> None:
    extra = VALUES["additionalInstanceConfig"]
    assert extra == {part: INSTANCE[part] for part in extra}
    assert set(extra) == {"concurrency", "run_retries", "nux"}


def test_the_run_launcher_is_ours() -> None:
    same = {
        "imagePullPolicy": "image_pull_policy",
        "labels": "labels",
        "resources": "resources",
        "securityContext": "security_context",
        "volumes": "volumes",
        "volumeMounts": "volume_mounts",
    }
    assert {k: OURS[k] for k in same} == {k: LAUNCHER[v] for k, v in same.items()}
    theirs, own = OURS["runK8sConfig"], LAUNCHER["run_k8s_config"]
    assert theirs["podSpecConfig"]["securityContext"] == own["pod_spec_config"]["security_context"]
    assert theirs["jobSpecConfig"] == {
        "backoffLimit": own["job_spec_config"]["backoff_limit"],
        "ttlSecondsAfterFinished": own["job_spec_config"]["ttl_seconds_after_finished"],
    }
    names = [one["name"] for one in (*OURS["envConfigMaps"], *OURS["envSecrets"])]
    assert names == [*LAUNCHER["env_config_maps"], *LAUNCHER["env_secrets"]]


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
    for kind in ("schedule", "sensor"):
        days = INSTANCE["retention"][kind]["purge_after_days"]
        assert VALUES["retention"][kind]["purgeAfterDays"] == days


@pytest.mark.parametrize(
    "part",
    [CODE, VALUES["dagsterWebserver"], VALUES["dagsterDaemon"]],
    ids=["code", "ui", "daemon"],
)
def test_pods_of_the_chart_are_as_the_namespace_wants_them(part: dict[str, Any]) -> None:
    image = f"{part['image']['repository']}:{part['image']['tag']}"
    container = {
        "name": "chart",
        "image": image,
        "resources": part["resources"],
        "securityContext": part["securityContext"],
    }
    spec = {
        "containers": [container],
        "securityContext": part["podSecurityContext"],
        "automountServiceAccountToken": False,
    }
    pod = {
        "kind": "Deployment",
        "metadata": {"name": "chart"},
        "spec": {"template": {"spec": spec}},
    }
    for rule in (rules.not_restricted, rules.unpinned, rules.unbounded):
        assert rule([pod]) == []


def test_the_account_and_the_labels_are_those_of_the_base() -> None:
    """The policies of ../base know pods by their labels, its Roles are bound to its account."""
    files = [file for file in (DEPLOY / "base").iterdir() if file.name != "kustomization.yaml"]
    base = [one for file in files for one in yaml.safe_load_all(file.read_text())]
    accounts = {one["metadata"]["name"] for one in base if one["kind"] == "ServiceAccount"}
    assert VALUES["serviceAccount"]["name"] in accounts
    assert VALUES["serviceAccount"]["name"] == VALUES["global"]["serviceAccountName"]
    parts = {CODE["labels"]["ml-assets.io/part"], OURS["labels"]["ml-assets.io/part"]}
    parts |= {
        VALUES[p]["labels"]["ml-assets.io/part"] for p in ("dagsterWebserver", "dagsterDaemon")
    }
    assert parts == {"code-location", "run", "operators-ui", "daemon"}
    assert VALUES["global"]["dagsterHome"] == LAUNCHER["dagster_home"]
    (ui,) = [o for o in base if (o["kind"], o["metadata"]["name"]) == ("NetworkPolicy", "ui")]
    (port,) = ui["spec"]["ingress"][0]["ports"]
    assert VALUES["dagsterWebserver"]["service"]["port"] == port["port"]
