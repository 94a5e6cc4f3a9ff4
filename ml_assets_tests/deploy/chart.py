"""What Dagster's Helm chart makes of our values: its Deployments, Services and Roles, and what its
dagster.yaml says of the queue.

Its templates were read for it (helm/dagster in dagster-io/dagster); CI renders the chart itself.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

VALUES: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[2] / "deploy" / "helm" / "values.yaml").read_text()
)
RELEASE = "dagster"
"""Its name in docs/cluster.md: the names of all that it makes begin so."""
USER_CODE = "dagster-user-deployments"
(CODE,) = VALUES[USER_CODE]["deployments"]
CODE_NAME = f"{RELEASE}-dagster-user-deployments-{CODE['name']}"
CHART_PROBE = {"httpGet": {"path": "/server_info", "port": 80}, "periodSeconds": 20}
"""Of a webserver, where the values give none: at the chart's own port, whatever ours is."""
COMPONENT = "dagster-webserver"
COORDINATORS = "dagster._core.run_coordinator"
WRITES = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
CHART_RULES = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": WRITES},
    {"apiGroups": [""], "resources": ["pods", "events"], "verbs": WRITES},
]
"""What a Role of the chart grants, but for the status and the logs of those."""


def made() -> list[dict[str, Any]]:
    """The code location, both webservers, their Services, the daemon; rights of its own, if any."""
    web = VALUES["dagsterWebserver"]
    found = [deployment(CODE_NAME, CODE, "user-deployments", CODE["port"])]
    found.append(service(CODE["name"], "user-deployments", CODE["port"]))
    for suffix in ("", "-read-only")[: 1 + web["enableReadOnly"]]:
        name, component = f"{RELEASE}-{web['nameOverride']}{suffix}", COMPONENT + suffix
        found.append(webserver(name, web, component))
        found.append(service(name, component, web["service"]["port"]))
    found.append(deployment(f"{RELEASE}-daemon", VALUES["dagsterDaemon"], "dagster-daemon"))
    return found + rights()


def rights() -> list[dict[str, Any]]:
    """The Roles of the chart and of the one within it, each unless its own values say no."""
    names = {RELEASE: VALUES, f"{RELEASE}-dagster-user-deployments": VALUES[USER_CODE]}
    own = [name for name, values in names.items() if values.get("rbacEnabled", True)]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": CHART_RULES}
    return [role | {"metadata": {"name": f"{name}-role"}} for name in own]


def instance() -> dict[str, Any]:
    """The parts of its dagster.yaml that our launcher and stores have no say in."""
    coordinator = VALUES["dagsterDaemon"]["runCoordinator"]
    said = coordinator.get("config", {})
    if not coordinator["enabled"]:
        found = {"module": f"{COORDINATORS}.sync_in_memory_run_coordinator"}
        found |= {"class": "SyncInMemoryRunCoordinator"}
    elif coordinator["type"] == "CustomRunCoordinator":
        found = said["customRunCoordinator"]
    else:
        limit = said.get("queuedRunCoordinator", {}).get("maxConcurrentRuns", -1)
        found = {"module": COORDINATORS, "class": "QueuedRunCoordinator"}
        found |= {"config": {"max_concurrent_runs": limit}}
    return {"run_coordinator": found} | VALUES["additionalInstanceConfig"]


def webserver(name: str, values: Mapping[str, Any], component: str) -> dict[str, Any]:
    """Listens on every address of its pod: nothing in it asks who is there."""
    found = deployment(name, values, component, values["service"]["port"])
    (container,) = found["spec"]["template"]["spec"]["containers"]
    container["readinessProbe"] = CHART_PROBE | values.get("readinessProbe", {})
    return found


def deployment(
    name: str, values: Mapping[str, Any], component: str, port: int | None = None
) -> dict[str, Any]:
    """With an account whose token it always mounts."""
    own = {"app.kubernetes.io/name": "dagster", "app.kubernetes.io/instance": RELEASE}
    own |= {"component": component}
    container = {
        "name": "dagster",
        "image": f"{values['image']['repository']}:{values['image']['tag']}",
        "imagePullPolicy": values["image"]["pullPolicy"],
        "envFrom": [{"configMapRef": one} for one in values["envConfigMaps"]]
        + [{"secretRef": one} for one in values["envSecrets"]],
        "resources": values["resources"],
        "securityContext": values["securityContext"],
        "volumeMounts": values["volumeMounts"],
    }
    if port is not None:
        container["ports"] = [{"name": "http", "containerPort": port}]
    pod = {
        "serviceAccountName": VALUES["global"]["serviceAccountName"],
        "automountServiceAccountToken": True,
        "securityContext": values["podSecurityContext"],
        "containers": [container],
        "volumes": values["volumes"],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": own},
            "template": {"metadata": {"labels": own | values["labels"]}, "spec": pod},
        },
    }


def service(name: str, component: str, port: int) -> dict[str, Any]:
    """To the port of the same number."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"component": component}, "ports": [{"name": "http", "port": port}]},
    }
