"""The rules whose breach a real server answers with 422: those that a client of Jobs can break."""

import json
import re
from typing import Any

from ml_assets_tests.servers.kubernetes import quantities
from ml_assets_tests.servers.kubernetes.errors import Cause, Json
from ml_assets_tests.servers.kubernetes.resources import JOBS, PODS, SERVICES, Resource

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}\w)?")
_IMMUTABLE = "field is immutable"


def required(field: str, why: str = "") -> Cause:
    return "FieldValueRequired", field, f"Required value{': ' + why if why else ''}"


def wrong(field: str, value: Any, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else _shown(value)
    return "FieldValueInvalid", field, f"Invalid value: {shown}: {why}"


def unsupported(field: str, value: Any, known: tuple[str, ...]) -> Cause:
    listed = ", ".join(f'"{word}"' for word in known)
    message = f'Unsupported value: "{value}": supported values: {listed}'
    return "FieldValueNotSupported", field, message


def _shown(value: Any) -> str:
    return json.dumps(value)


def causes_of(resource: Resource, obj: Json) -> list[Cause]:
    """What is wrong with an object of this kind; defaults are filled in already."""
    found = _labels("metadata.labels", obj["metadata"].get("labels"))
    if resource is PODS:
        found += _pod_spec("spec", obj.get("spec") or {})
    elif resource is JOBS:
        found += _job(obj)
    elif resource is SERVICES:
        found += _service(obj["spec"])
    return found


def _labels(field: str, labels: Json | None) -> list[Cause]:
    found = []
    for key, value in (labels or {}).items():
        if not _LABEL_KEY.fullmatch(key):
            found.append(wrong(field, key, "name part must consist of alphanumeric characters"))
        if len(str(value)) > 63:
            found.append(wrong(field, value, "must be no more than 63 characters"))
        elif not _LABEL_VALUE.fullmatch(str(value)):
            found.append(
                wrong(
                    field,
                    value,
                    "a valid label must be an empty string or consist of alphanumeric characters,"
                    " '-', '_' or '.', and must start and end with an alphanumeric character",
                )
            )
    return found


# --- pods -----------------------------------------------------------------------------------------


def _pod_spec(field: str, spec: Json) -> list[Cause]:
    containers = spec.get("containers") or []
    found = [] if containers else [required(f"{field}.containers")]
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    names: set[str] = set()
    for kind in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(kind) or []):
            found += _container(f"{field}.{kind}[{i}]", container, volumes, names)
    restart = spec.get("restartPolicy")
    if restart not in ("Always", "OnFailure", "Never", None):
        found.append(
            unsupported(f"{field}.restartPolicy", restart, ("Always", "OnFailure", "Never"))
        )
    for name in ("hostname", "subdomain"):
        if spec.get(name) and not _DNS_LABEL.fullmatch(spec[name]):
            found.append(wrong(f"{field}.{name}", spec[name], "must be a DNS-1123 label"))
    grace = spec.get("terminationGracePeriodSeconds", 30)
    if grace < 0:
        found.append(
            wrong(
                f"{field}.terminationGracePeriodSeconds",
                grace,
                "must be greater than or equal to 0",
            )
        )
    return found


def _container(field: str, container: Json, volumes: set[Any], names: set[str]) -> list[Cause]:
    found = []
    name = container.get("name") or ""
    if not name:
        found.append(required(f"{field}.name"))
    elif not _DNS_LABEL.fullmatch(name):
        found.append(
            wrong(
                f"{field}.name",
                name,
                "a lowercase RFC 1123 label must consist of"
                " lower case alphanumeric characters or '-'",
            )
        )
    elif name in names:
        found.append(("FieldValueDuplicate", f"{field}.name", f'Duplicate value: "{name}"'))
    names.add(name)
    if not container.get("image"):
        found.append(required(f"{field}.image"))
    for i, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name") not in volumes:
            message = f'Not found: "{mount.get("name")}"'
            found.append(("FieldValueNotFound", f"{field}.volumeMounts[{i}].name", message))
        if not mount.get("mountPath"):
            found.append(required(f"{field}.volumeMounts[{i}].mountPath"))
    return found + _amounts(f"{field}.resources", container.get("resources") or {})


def _amounts(field: str, resources: Json) -> list[Cause]:
    found = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, amount in requests.items():
        if name in limits and quantities.read(amount) > quantities.read(limits[name]):
            why = f"must be less than or equal to {name} limit of {limits[name]}"
            found.append(wrong(f"{field}.requests", str(amount), why))
        if "/" in name and name not in limits:
            message = "Required value: Limit must be set for non overcommitable resources"
            found.append(("FieldValueRequired", f"{field}.limits", message))
    return found


# --- jobs -----------------------------------------------------------------------------------------


def _job(job: Json) -> list[Cause]:
    spec = job["spec"]
    template = spec.get("template") or {}
    if not isinstance(template.get("spec"), dict):
        return [required("spec.template.spec.containers")]
    found = _pod_spec("spec.template.spec", template["spec"])
    found += _labels("spec.template.labels", (template.get("metadata") or {}).get("labels"))
    restart = template["spec"].get("restartPolicy")
    if restart in (None, "Always"):  # a pod's default is Always: for a Job it is as if missing
        found.append(("FieldValueRequired", f"{_POD}.restartPolicy", _RESTART_REQUIRED))
    elif restart not in ("OnFailure", "Never"):
        found.append(unsupported(f"{_POD}.restartPolicy", restart, ("OnFailure", "Never")))
    for name in (
        "parallelism",
        "completions",
        "backoffLimit",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
    ):
        if (spec.get(name) or 0) < 0:
            found.append(wrong(f"spec.{name}", spec[name], "must be greater than or equal to 0"))
    return found + _indexed(job) + _failure_policy(spec)


_POD = "spec.template.spec"
_RESTART_REQUIRED = 'Required value: valid values: "OnFailure", "Never"'


def _indexed(job: Json) -> list[Cause]:
    spec = job["spec"]
    mode = spec["completionMode"]
    if mode not in ("Indexed", "NonIndexed"):
        return [unsupported("spec.completionMode", mode, ("Indexed", "NonIndexed"))]
    if mode == "NonIndexed":
        return []
    if spec.get("completions") is None:
        return [required("spec.completions", "when completion mode is Indexed")]
    host = f"{job['metadata']['name']}-{spec['completions'] - 1}"
    if not _DNS_LABEL.fullmatch(host):
        why = f"will not able to create pod with invalid DNS label: {host}"
        return [wrong("metadata.name", job["metadata"]["name"], why)]
    return []


def _failure_policy(spec: Json) -> list[Cause]:
    policy = spec.get("podFailurePolicy")
    found = []
    replacement = spec["podReplacementPolicy"]
    if replacement not in ("Failed", "TerminatingOrFailed"):
        known = ("Failed", "TerminatingOrFailed")
        found.append(unsupported("spec.podReplacementPolicy", replacement, known))
    if not policy:
        return found
    if replacement != "Failed":
        found.append(unsupported("spec.podReplacementPolicy", replacement, ("Failed",)))
    if spec["template"]["spec"].get("restartPolicy") != "Never":
        why = 'only "Never" is supported when podFailurePolicy is specified'
        restart = spec["template"]["spec"].get("restartPolicy")
        found.append(wrong("spec.template.spec.restartPolicy", restart, why))
    containers = {
        container.get("name")
        for kind in ("containers", "initContainers")
        for container in spec["template"]["spec"].get(kind) or []
    }
    for i, rule in enumerate(policy.get("rules") or []):
        found += _rule(f"spec.podFailurePolicy.rules[{i}]", rule, containers)
    return found


_ACTIONS = ("Count", "FailJob", "Ignore")
"""A real server also knows FailIndex, which needs backoffLimitPerIndex: not served here."""


def _rule(field: str, rule: Json, containers: set[Any]) -> list[Cause]:
    found = []
    if rule.get("action") not in _ACTIONS:
        found.append(unsupported(f"{field}.action", rule.get("action"), _ACTIONS))
    codes = rule.get("onExitCodes")
    if bool(codes) == bool(rule.get("onPodConditions")):
        why = "specifying one of OnExitCodes and OnPodConditions is required"
        found.append(("FieldValueInvalid", field, f"Invalid value: {_shown(rule)}: {why}"))
    if codes:
        name = codes.get("containerName")
        if name is not None and name not in containers:
            why = "must be one of the container or initContainer names in the pod template"
            found.append(wrong(f"{field}.onExitCodes.containerName", name, why))
        if codes.get("operator") not in ("In", "NotIn"):
            known = ("In", "NotIn")
            found.append(unsupported(f"{field}.onExitCodes.operator", codes.get("operator"), known))
        values = codes.get("values") or []
        if not values:
            found.append(
                wrong(f"{field}.onExitCodes.values", values, "at least one value is required")
            )
        if values != sorted(values):
            found.append(wrong(f"{field}.onExitCodes.values", values, "must be ordered"))
        if 0 in values and codes.get("operator") == "In":
            at = f"{field}.onExitCodes.values[{values.index(0)}]"
            found.append(wrong(at, 0, "must not be 0 for the In operator"))
    return found


def job_update_causes(old: Json, new: Json) -> list[Cause]:
    """What of a Job may not change; suspend, parallelism, deadlines and TTL may."""
    before, after = old["spec"], new["spec"]
    found = []
    for name in ("selector", "completionMode", "podFailurePolicy"):
        if before.get(name) != after.get(name):
            found.append(wrong(f"spec.{name}", after.get(name), _IMMUTABLE))
    if before.get("completions") != after.get("completions"):
        elastic = before["completionMode"] == "Indexed"
        if not elastic or after.get("completions") != after.get("parallelism"):
            why = "can only be modified in tandem with spec.parallelism" if elastic else _IMMUTABLE
            found.append(wrong("spec.completions", after.get("completions"), why))
    if before.get("template") != after.get("template") and not _may_schedule(old, new):
        found.append(wrong("spec.template", after.get("template"), _IMMUTABLE))
    return found


def _may_schedule(old: Json, new: Json) -> bool:
    """A suspended Job that never ran may still be told where to run (Kueue does)."""
    if not old["spec"].get("suspend") or old.get("status", {}).get("startTime"):
        return False
    free = ("nodeSelector", "tolerations", "affinity", "schedulingGates")

    def bound(job: Json) -> Json:
        spec = job["spec"]["template"]["spec"]
        return {key: value for key, value in spec.items() if key not in free}

    return bound(old) == bound(new)


def _service(spec: Json) -> list[Cause]:
    if not spec.get("ports") and spec.get("clusterIP") != "None":
        return [required("spec.ports")]
    return []
