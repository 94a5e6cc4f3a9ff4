"""Small Jobs for the claims, and waits that a watch ends."""

import time
from collections.abc import Callable
from typing import Any

from ml_assets_tests.servers.kubernetes.cluster import TestCluster

PATIENCE = 120
"""Seconds until a wait gives up: a real cluster pulls an image first."""

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
OBEDIENT = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print('up', flush=True)
time.sleep(600)
"""
"""Ends at TERM; the first process of a container ignores it otherwise."""


def job(
    cluster: TestCluster,
    script: str,
    *,
    name: str = "claim",
    pods: int = 1,
    template: dict[str, Any] | None = None,
    container: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """An Indexed Job of `pods` pods that run a Python script; no second try unless asked for."""
    main = {"name": "main", "image": cluster.image, "command": ["python", "-c", script]}
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "containers": [{**main, **(container or {})}],
        **(template or {}),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"claim": name}},
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            "backoffLimit": 0,
            "template": {"metadata": {"labels": {"claim": name}}, "spec": pod},
            **spec,
        },
    }


class Namespace:
    """The calls of the claims: the official client, in one namespace."""

    def __init__(self, cluster: TestCluster, *, retries: bool = True) -> None:
        """Without `retries` a connection that breaks is an error at once."""
        from kubernetes import client

        self.name = cluster.namespace
        api = cluster.client()
        if not retries:
            api.configuration.retries = False
            api = client.ApiClient(api.configuration)
        self.batch = client.BatchV1Api(api)
        self.core = client.CoreV1Api(api)

    def create(self, manifest: dict[str, Any]) -> Any:
        return self.batch.create_namespaced_job(self.name, manifest)

    def read(self, name: str = "claim") -> Any:
        return self.batch.read_namespaced_job(name, self.name)

    def pods(self, selector: str = "") -> list[Any]:
        """Sorted by their index."""
        found = self.core.list_namespaced_pod(self.name, label_selector=selector).items
        return sorted(found, key=lambda pod: pod.metadata.name)

    def pod(self, index: int, selector: str = "") -> Any:
        label = "batch.kubernetes.io/job-completion-index"
        wanted = ",".join(part for part in (selector, f"{label}={index}") if part)
        return next(iter(self.pods(wanted)), None)

    def log(self, pod: str, **options: Any) -> str:
        """As it is: the client would read a log that looks like JSON and write it anew."""
        answer = self.core.read_namespaced_pod_log(
            pod, self.name, _preload_content=False, **options
        )
        return answer.data.decode()

    def is_up(self, index: int) -> bool:
        """Whether the script of a pod has said its first word."""
        pod = self.pod(index)
        return bool(pod and is_running(pod) and self.log(pod.metadata.name))

    def evict(self, pod: str) -> None:
        body = {"metadata": {"name": pod, "namespace": self.name}}
        self.core.create_namespaced_pod_eviction(pod, self.name, body)

    def events(self, name: str) -> list[Any]:
        field = f"involvedObject.name={name}"
        return self.core.list_namespaced_event(self.name, field_selector=field).items

    def warnings(self, name: str) -> str:
        """What the warnings about an object say."""
        return "\n".join(e.message for e in self.events(name) if e.type == "Warning")

    def quota_is_counted(self, name: str) -> bool:
        """A quota counts from when its status is written."""
        quota: Any = self.core.read_namespaced_resource_quota(name, self.name)
        return bool(quota.status and quota.status.hard)

    def job_where(self, condition: Callable[[Any], Any], name: str = "claim") -> Any:
        """The first state of a Job that meets the condition."""
        return self._first(self.batch.list_namespaced_job, condition, name)

    def pod_where(
        self, condition: Callable[[Any], Any], name: str | None = None, since: str | None = None
    ) -> Any:
        """The first pod like that; ``since``: what it was after that version counts, too."""
        return self._first(self.core.list_namespaced_pod, condition, name, since)

    def _first(
        self, call: Any, condition: Callable[[Any], Any], name: str | None, since: str | None = None
    ) -> Any:
        from kubernetes import watch

        field = f"metadata.name={name}" if name else ""
        end = time.monotonic() + PATIENCE
        seen = None
        while time.monotonic() < end:
            follow = watch.Watch()
            begin = {"resource_version": since} if since else {}
            events: Any = follow.stream(
                call, self.name, field_selector=field, timeout_seconds=10, **begin
            )
            for event in events:
                seen = event["object"]
                if event["type"] in ("ADDED", "MODIFIED") and condition(seen):
                    follow.stop()
                    return seen
        raise AssertionError(f"nothing met the condition in {PATIENCE} s; last seen: {seen}")


def after(pod: Any) -> dict[str, str]:
    """Names a pod to ``pod_where``, with all that becomes of it from here on."""
    return {"name": pod.metadata.name, "since": pod.metadata.resource_version}


def has(kind: str) -> Callable[[Any], Any]:
    """Whether a Job or a pod has a condition that is true."""
    return lambda obj: condition(obj, kind)


def condition(obj: Any, kind: str) -> Any:
    for found in obj.status.conditions or []:
        if found.type == kind and found.status == "True":
            return found
    return None


def is_running(pod: Any) -> bool:
    return pod.status.phase == "Running"


def ended(obj: Any) -> Any:
    return condition(obj, "Complete") or condition(obj, "Failed")


def exit_code(pod: Any) -> int | None:
    """Of the first container that has ended."""
    for status in pod.status.container_statuses or []:
        if status.state.terminated:
            return status.state.terminated.exit_code
    return None


def until(condition: Callable[[], Any]) -> Any:
    """The condition's first true value, where no watch can tell of it."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, f"nothing came in {PATIENCE} s"
        time.sleep(0.02)
    return value
