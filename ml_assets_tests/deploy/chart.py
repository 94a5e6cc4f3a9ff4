"""What Dagster's Helm chart makes of our values: its Deployments and Services.

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
(CODE,) = VALUES["dagster-user-deployments"]["deployments"]
CODE_NAME = f"{RELEASE}-dagster-user-deployments-{CODE['name']}"
CHART_PROBE = {"httpGet": {"path": "/server_info", "port": 80}, "periodSeconds": 20}
"""Of a webserver, where the values give none: at the chart's own port, whatever ours is."""
COMPONENT = "dagster-webserver"


def made() -> list[dict[str, Any]]:
    """The code location, both webservers, their Services, the daemon."""
    web = VALUES["dagsterWebserver"]
    found = [deployment(CODE_NAME, CODE, "user-deployments", CODE["port"])]
    found.append(service(CODE["name"], "user-deployments", CODE["port"]))
    for suffix in ("", "-read-only")[: 1 + web["enableReadOnly"]]:
        name, component = f"{RELEASE}-{web['nameOverride']}{suffix}", COMPONENT + suffix
        found.append(webserver(name, web, component))
        found.append(service(name, component, web["service"]["port"]))
    found.append(deployment(f"{RELEASE}-daemon", VALUES["dagsterDaemon"], "dagster-daemon"))
    return found


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
