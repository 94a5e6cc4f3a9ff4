"""What the API server fills in before it keeps an object."""

import base64
import ipaddress
import itertools
import random

from ml_assets_tests.servers.kubernetes.deletion import JOB_TRACKING
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.resources import JOBS, NODES, PODS, SERVICES, Resource
from ml_assets_tests.servers.kubernetes.store import clone

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED = 58
"""A generated name's prefix is cut here; five letters follow."""
_ADDRESSES = itertools.count(10)

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
INDEX = "batch.kubernetes.io/job-completion-index"


def generated(prefix: str) -> str:
    return prefix[:_GENERATED] + "".join(random.choices(_LETTERS, k=5))


def fill(resource: Resource, obj: Json) -> None:
    """Defaults that need no other object; for a Job those that need its uid: `fill_job_uid`."""
    if resource is PODS:
        _fill_pod(obj)
    elif resource is JOBS:
        _fill_job(obj)
    elif resource is SERVICES:
        _fill_service(obj)
    elif resource is NODES:
        obj.setdefault("spec", {})
    elif resource.kind == "Namespace":
        obj.setdefault("spec", {})["finalizers"] = ["kubernetes"]
        obj["status"] = {"phase": "Active"}
    elif resource.kind == "Secret":
        obj.setdefault("type", "Opaque")
        _merge_string_data(obj)


def _merge_string_data(secret: Json) -> None:
    for key, text in (secret.pop("stringData", None) or {}).items():
        secret.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()


def _fill_pod_spec(spec: Json, restart: str | None) -> None:
    if restart:
        spec.setdefault("restartPolicy", restart)
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        if not isinstance(container, dict):
            continue
        image = str(container.get("image", ""))
        named = "@" in image or ":" in image.rpartition("/")[2]
        latest = not named or image.endswith(":latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        resources = container.setdefault("resources", {})
        if resources.get("limits"):
            requests = resources.setdefault("requests", {})
            for name, amount in resources["limits"].items():
                requests.setdefault(name, amount)


def _fill_pod(pod: Json) -> None:
    spec = pod["spec"]
    _fill_pod_spec(spec, "Always")
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("enableServiceLinks", True)
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(toleration.get("key") in (key, None) for toleration in tolerations):
            lost = {"effect": "NoExecute", "operator": "Exists", "tolerationSeconds": 300}
            tolerations.append({"key": key, **lost})
    pod["status"] = {"phase": "Pending", "qosClass": _quality(spec)}


def _quality(spec: Json) -> str:
    resources = [container.get("resources") or {} for container in spec["containers"]]
    if not any(r.get("limits") or r.get("requests") for r in resources):
        return "BestEffort"
    same = all(
        {"cpu", "memory"} <= set(r.get("limits") or {}) and r.get("requests") == r.get("limits")
        for r in resources
    )
    return "Guaranteed" if same else "Burstable"


def _fill_job(job: Json) -> None:
    spec = job["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    policy = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", policy)
    if isinstance(spec.get("template"), dict) and isinstance(spec["template"].get("spec"), dict):
        _fill_pod_spec(spec["template"]["spec"], None)
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or []:
        for pattern in rule.get("onPodConditions") or []:
            pattern.setdefault("status", "True")
    job["status"] = {}


def fill_job_uid(job: Json) -> None:
    """The selector and labels that tie a Job's pods to it; they need its uid."""
    meta, spec = job["metadata"], job["spec"]
    if spec.pop("manualSelector", False):
        spec["manualSelector"] = True
        return
    uid = meta["uid"]
    spec["selector"] = {"matchLabels": {CONTROLLER_UID: uid}}
    template = spec["template"].setdefault("metadata", {})
    labels = template.setdefault("labels", {})
    labels |= {
        CONTROLLER_UID: uid,
        JOB_NAME: meta["name"],
        "controller-uid": uid,
        "job-name": meta["name"],
    }
    if not meta.get("labels"):
        meta["labels"] = dict(labels)


def _fill_service(service: Json) -> None:
    spec = service["spec"]
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec.get("clusterIP") in (None, ""):
        address = ipaddress.IPv4Address("10.96.0.0") + next(_ADDRESSES)
        spec["clusterIP"] = str(address)
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    service.setdefault("status", {"loadBalancer": {}})


def pod_of_job(job: Json, index: int | None) -> Json:
    """A pod as the Job controller makes it from the template; `index` is None if not Indexed."""
    meta, template = job["metadata"], clone(job["spec"]["template"])
    base = meta["name"] if index is None else f"{meta['name']}-{index}"
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    told = template.get("metadata") or {}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{base}-",
            "namespace": meta["namespace"],
            "labels": dict(told.get("labels") or {}),
            "annotations": dict(told.get("annotations") or {}),
            "finalizers": [JOB_TRACKING],
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }
    if index is not None:
        _give_index(pod, base, index)
    return pod


def _give_index(pod: Json, base: str, index: int) -> None:
    pod["metadata"]["labels"][INDEX] = str(index)
    pod["metadata"]["annotations"][INDEX] = str(index)
    pod["spec"]["hostname"] = base
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    for container in [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]:
        variables = container.setdefault("env", [])
        if all(variable["name"] != "JOB_COMPLETION_INDEX" for variable in variables):
            variables.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
