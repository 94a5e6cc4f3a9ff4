"""`metav1.Table`: how `kubectl get` asks to be shown things."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from ml_assets_tests.servers.kubernetes.clock import read_stamp
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.job_rules import condition
from ml_assets_tests.servers.kubernetes.resources import Resource

Cells = list[tuple[str, Any]]
"""(column, value) in order; the same columns for each object of a kind."""


def is_wanted(accept: str) -> bool:
    return accept.partition(",")[0].find("as=Table") >= 0


def table(resource: Resource, objects: list[Json], meta: Json, now: datetime) -> Json:
    rows = []
    columns: list[str] = [column for column, _ in _cells(resource, _EXAMPLE, now)]
    for obj in objects:
        cells = _cells(resource, obj, now)
        shown = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": obj["metadata"],
        }
        rows.append({"cells": [value for _, value in cells], "object": shown})
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [
            {"name": name, "type": "string", "format": "", "description": "", "priority": 0}
            for name in columns
        ],
        "rows": rows,
    }


_EXAMPLE: Json = {"metadata": {"name": "", "creationTimestamp": "2020-01-01T00:00:00Z"}}


def _cells(resource: Resource, obj: Json, now: datetime) -> Cells:
    name, age = ("Name", obj["metadata"].get("name")), ("Age", _age(obj, now))
    own = _OWN.get(resource.plural)
    if resource.plural == "events":
        return _event(obj, now)
    return [name, *(own(obj, now) if own else []), age]


def _pod(pod: Json, now: datetime) -> Cells:
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    containers = status.get("containerStatuses") or []
    ready = sum(bool(container.get("ready")) for container in containers)
    restarts = sum(container.get("restartCount", 0) for container in containers)
    return [
        ("Ready", f"{ready}/{len(spec.get('containers') or [])}"),
        ("Status", _pod_word(pod)),
        ("Restarts", str(restarts)),
    ]


def _pod_word(pod: Json) -> str:
    status = pod.get("status") or {}
    word = status.get("reason") or status.get("phase", "")
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        found = state.get("waiting") or state.get("terminated") or {}
        word = found.get("reason") or word
    return "Terminating" if "deletionTimestamp" in pod["metadata"] else word


def _job(job: Json, now: datetime) -> Cells:
    status, spec = job.get("status") or {}, job.get("spec") or {}
    word = "Running"
    for kind, shown in (
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
    ):
        if condition(status, kind):
            word = shown
            break
    done = f"{status.get('succeeded', 0)}/{spec.get('completions', 1)}"
    took = ""
    if status.get("startTime"):
        end = status.get("completionTime")
        took = _span((read_stamp(end) if end else now) - read_stamp(status["startTime"]))
    return [("Status", word), ("Completions", done), ("Duration", took)]


def _service(service: Json, now: datetime) -> Cells:
    spec = service.get("spec") or {}
    ports = ",".join(f"{p['port']}/{p.get('protocol', 'TCP')}" for p in spec.get("ports") or [])
    return [
        ("Type", spec.get("type", "")),
        ("Cluster-IP", spec.get("clusterIP", "")),
        ("Port(s)", ports or "<none>"),
    ]


def _node(node: Json, now: datetime) -> Cells:
    word = "Ready" if condition(node.get("status") or {}, "Ready") else "NotReady"
    if (node.get("spec") or {}).get("unschedulable"):
        word += ",SchedulingDisabled"
    return [("Status", word)]


def _namespace(namespace: Json, now: datetime) -> Cells:
    return [("Status", (namespace.get("status") or {}).get("phase", ""))]


def _secret(secret: Json, now: datetime) -> Cells:
    return [("Type", secret.get("type", "")), ("Data", str(len(secret.get("data") or {})))]


def _event(event: Json, now: datetime) -> Cells:
    involved = event.get("involvedObject") or {}
    last = event.get("lastTimestamp")
    return [
        ("Last Seen", _span(now - read_stamp(last)) if last else ""),
        ("Type", event.get("type", "")),
        ("Reason", event.get("reason", "")),
        ("Object", f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"),
        ("Message", event.get("message", "")),
    ]


_OWN: dict[str, Callable[[Json, datetime], Cells]] = {
    "pods": _pod,
    "jobs": _job,
    "services": _service,
    "nodes": _node,
    "namespaces": _namespace,
    "secrets": _secret,
}


def _age(obj: Json, now: datetime) -> str:
    return _span(now - read_stamp(obj["metadata"]["creationTimestamp"]))


def _span(span: timedelta) -> str:
    seconds = max(0, int(span.total_seconds()))
    for unit, letter in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * unit:
            return f"{seconds // unit}{letter}"
    return f"{seconds}s"
