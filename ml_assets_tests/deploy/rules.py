"""Rules for Kubernetes objects: each returns what breaks it, one line a finding.

They are functions of a list of objects, so that a test can plant the fault and see it found.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ml_assets.settings.cluster import bytes_of

Object = Mapping[str, Any]
Rule = Callable[[Sequence[Object]], list[str]]

OURS = "ml-assets/"
MAY_HAVE_A_TOKEN = {"dagster-daemon", "dagster-operators-ui", "dagster-readers-ui"}
MAY_HAVE_A_TOKEN |= {"dagster-webserver", "dagster-webserver-read-only"}
MAY_HAVE_A_TOKEN |= {"dagster-dagster-user-deployments-ml-assets-code"}
"""The last three: of the Helm chart, which gives one to all that it makes."""
TRAINING = {"app.kubernetes.io/name": "ml-assets-training"}
RUN = {"ml-assets.io/part": "run"}
"""Labels of pods that are not declared but created: by the launcher, and by Dagster's."""
SECRETS = {
    "ml-assets-orchestrator",
    "ml-assets-registry",
    "ml-assets-training",
    "ml-assets-ui",
    "ml-assets-reports",
    "ml-assets-readers-login",
    "ml-assets-operators-login",
}
"""Made by hand or by an operator, never by these manifests; docs/cluster.md says how."""


def templates(objects: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    """Every pod that the objects declare, with the name of what declares it."""
    for one in objects:
        if one["kind"] == "PodTemplate":
            yield one["metadata"]["name"], one["template"]
        elif "template" in one.get("spec", {}):
            yield one["metadata"]["name"], one["spec"]["template"]


def containers(objects: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    for name, template in templates(objects):
        spec = template["spec"]
        for one in [*spec.get("initContainers", ()), *spec["containers"]]:
            yield f"{name}/{one['name']}", one


def not_restricted(objects: Sequence[Object]) -> list[str]:
    """What Pod Security Admission's level `restricted` refuses, and a writable root."""
    found = []
    for name, template in templates(objects):
        spec = template["spec"]
        pod = spec.get("securityContext", {})
        if pod.get("runAsNonRoot") is not True or pod.get("runAsUser") == 0:
            found.append(f"{name}: may be root")
        if pod.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            found.append(f"{name}: no seccomp profile")
        if any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")):
            found.append(f"{name}: shares the host's namespaces")
        if any("hostPath" in volume for volume in spec.get("volumes", ())):
            found.append(f"{name}: mounts a path of the host")
    for name, container in containers(objects):
        own = container.get("securityContext", {})
        if own.get("privileged") or own.get("allowPrivilegeEscalation") is not False:
            found.append(f"{name}: may gain privileges")
        if own.get("capabilities") != {"drop": ["ALL"]}:
            found.append(f"{name}: keeps capabilities")
        if own.get("readOnlyRootFilesystem") is not True:
            found.append(f"{name}: its root file system is writable")
    return found


def unpinned(objects: Sequence[Object]) -> list[str]:
    """Our images by digest; another's by digest or by a full version, never `latest`."""
    found = []
    for name, container in containers(objects):
        image = container["image"]
        ours = f"/{OURS}" in image or image.startswith(OURS)
        by_digest = re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", image)
        if not by_digest and (ours or not re.fullmatch(r"\S+:v?\d+\.\d+\.\d+", image)):
            found.append(f"{name}: {image}")
    return found


def unbounded(objects: Sequence[Object]) -> list[str]:
    """Containers that say not what they need, or not how much memory they may take."""
    return [
        name
        for name, container in containers(objects)
        if not {"cpu", "memory"} <= set(container.get("resources", {}).get("requests", {}))
        or "memory" not in container["resources"].get("limits", {})
    ]


def cramped(objects: Sequence[Object]) -> list[str]:
    """Pods that are evicted before their own volumes are full: those lie on the disk that a limit
    is set to, which a LimitRange sets where a container says nothing."""
    given = [
        limits["default"].get("ephemeral-storage", "0")
        for one in objects
        if one["kind"] == "LimitRange"
        for limits in one["spec"]["limits"]
    ]
    found = []
    for name, template in templates(objects):
        spec = template["spec"]
        disks = [v.get("emptyDir", {}) for v in spec.get("volumes", ())]
        asked = sum(bytes_of(d["sizeLimit"]) for d in disks if "sizeLimit" in d)
        limits = [c.get("resources", {}).get("limits", {}) for c in spec["containers"]]
        said = [one.get("ephemeral-storage") or next(iter(given), "") for one in limits]
        if all(said) and asked > sum(bytes_of(one) for one in said):
            found.append(f"{name}: {asked / 2**30:g} GiB of volumes")
    return found


def loose_tokens(objects: Sequence[Object]) -> list[str]:
    """Pods and accounts that are given a token of the API server without a need."""
    found = [
        name
        for name, template in templates(objects)
        if template["spec"].get("automountServiceAccountToken") is not False
        and name not in MAY_HAVE_A_TOKEN
    ]
    accounts = [one for one in objects if one["kind"] == "ServiceAccount"]
    return found + [
        one["metadata"]["name"]
        for one in accounts
        if one.get("automountServiceAccountToken") is not False
    ]


def without_keys(objects: Sequence[Object]) -> list[str]:
    """Accounts whose pods cannot pull from a registry that asks who they are."""
    return [
        one["metadata"]["name"]
        for one in objects
        if one["kind"] == "ServiceAccount" and not one.get("imagePullSecrets")
    ]


def dangling(objects: Sequence[Object]) -> list[str]:
    """Names of ConfigMaps, Secrets and accounts that are used and nowhere declared."""
    declared = {(one["kind"], one["metadata"]["name"]) for one in objects}
    declared |= {("Secret", name) for name in SECRETS}
    keys = [key for one in objects for key in one.get("imagePullSecrets", ())]
    used: set[tuple[str, str]] = {("Secret", key["name"]) for key in keys}
    for _, template in templates(objects):
        spec = template["spec"]
        used.add(("ServiceAccount", spec.get("serviceAccountName", "default")))
        for volume in spec.get("volumes", ()):
            if "configMap" in volume:
                used.add(("ConfigMap", volume["configMap"]["name"]))
            if "secret" in volume:
                used.add(("Secret", volume["secret"]["secretName"]))
    for _, container in containers(objects):
        for source in container.get("envFrom", ()):
            kind = "ConfigMap" if "configMapRef" in source else "Secret"
            used.add((kind, next(iter(source.values()))["name"]))
        for mount in container.get("volumeMounts", ()):
            used.add(("Volume", mount["name"]))
    volumes = {
        ("Volume", v["name"]) for _, t in templates(objects) for v in t["spec"].get("volumes", ())
    }
    return sorted(f"{kind} {name}" for kind, name in used - declared - volumes)


def selects_nothing(objects: Sequence[Object]) -> list[str]:
    """Services, budgets and policies whose selector matches no pod that there will be."""
    pods = [TRAINING, RUN, *(t["metadata"].get("labels", {}) for _, t in templates(objects))]
    found = []
    for one in objects:
        spec, kind = one.get("spec", {}), one["kind"]
        selectors = []
        if kind == "Service":
            selectors = [{"matchLabels": spec["selector"]}]
        if kind == "PodDisruptionBudget":
            selectors = [spec["selector"]]
        if kind == "NetworkPolicy":
            peers = [
                p
                for way in ("ingress", "egress")
                for r in spec.get(way, ())
                for p in r.get("from", r.get("to", ()))
            ]
            inside = [
                p["podSelector"]
                for p in peers
                if "podSelector" in p and "namespaceSelector" not in p
            ]
            selectors = [spec["podSelector"], *inside]
        if not all(any(matches(selector, pod) for pod in pods) for selector in selectors):
            found.append(f"{kind} {one['metadata']['name']}")
    return found


def secrets_written_down(objects: Sequence[Object]) -> list[str]:
    """Secrets, and settings that hold what looks like one."""
    found = [one["metadata"]["name"] for one in objects if one["kind"] == "Secret"]
    for one in objects:
        if one["kind"] == "ConfigMap":
            found += [k for k in one["data"] if re.search("PASSWORD|SECRET_|ACCESS_KEY|_KEY$", k)]
            found += [k for k, v in one["data"].items() if re.search(r"://[^/\s]*:[^/\s]*@", v)]
    return found


def open_namespaces(objects: Sequence[Object]) -> list[str]:
    """Namespaces that let any pod in, or any connection."""
    policies = [one["spec"] for one in objects if one["kind"] == "NetworkPolicy"]
    closed = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} in policies
    return [
        one["metadata"]["name"]
        for one in objects
        if one["kind"] == "Namespace"
        and not (
            closed
            and one["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") == "restricted"
        )
    ]


def too_much_power(objects: Sequence[Object]) -> list[str]:
    """Roles for everything, for the whole cluster, over Secrets, or into a container."""
    found = []
    for one in objects:
        name = one["metadata"]["name"]
        if one["kind"] in ("ClusterRole", "ClusterRoleBinding"):
            found.append(f"{name}: the whole cluster")
        for rule in one.get("rules", ()):
            if "*" in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]:
                found.append(f"{name}: everything")
            if {"secrets", "pods/exec", "pods/attach"} & set(rule["resources"]):
                found.append(f"{name}: {rule['resources']}")
    return found


def matches(selector: Object, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects a pod with these labels."""
    wanted = selector.get("matchLabels", {}).items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        expression["key"] in labels
        and (
            expression["operator"] == "Exists" or labels[expression["key"]] in expression["values"]
        )
        for expression in selector.get("matchExpressions", ())
    )
