"""Our calls to a cluster: Jobs, pods, Services, events and logs of one namespace.

A thin layer over the official client: its methods make the calls, and their JSON becomes our own
types at once. Every verb and resource here is in the Role of deploy/.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ml_assets.errors import ClusterAway, ClusterRefused, MlAssetsError
from ml_assets.launch.kubernetes.calls import BUDGET_SECONDS, ClusterCalls
from ml_assets.launch.kubernetes.connection import Connections, connect
from ml_assets.launch.kubernetes.observations import (
    JobState,
    Json,
    KubernetesEvent,
    PodState,
    QueueWord,
    job_state,
    kubernetes_event,
    pod_state,
)
from ml_assets.launch.kubernetes.resources import (
    LOG_SILENCE_SECONDS,
    RAW,
    Lines,
    Listed,
    ObjectList,
    Watched,
    batch,
    core,
    decoded,
    deleter,
    extensions,
    lister,
    streaming,
    taking_for_done,
)
from ml_assets.launch.kubernetes.rights import require_rights

_KUEUE = "kueue.x-k8s.io"
_KUEUE_VERSIONS = ("v1beta2", "v1beta1")
"""From 0.15 on, and before."""
_JOB_UID = "kueue.x-k8s.io/job-uid"
_NODE_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_BETWEEN_LOOKS = (0.2, 2.0)
"""Seconds between two looks at what is left of a deletion: the first, and the longest."""


class KubernetesApi:
    """Asks one cluster for one namespace.

    Args:
        budget_seconds: within which a call is tried again.
        environment: where KUBECONFIG is looked up; None: the process's own.
    """

    def __init__(
        self,
        namespace: str,
        budget_seconds: float = BUDGET_SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.namespace = namespace
        self.calls = ClusterCalls(Connections(lambda: connect(environment)), budget_seconds)
        self._allowed = False
        """To do all that is needed; False: it was not asked yet."""
        self._nodes_are_shut = False

    def require_rights(self) -> None:
        """See ``rights.require_rights``; asked once.

        Raises:
            ClusterRefused: we may not do all that it takes to make, follow and end an attempt.
            ClusterAway: no answer within the budget.
        """
        if not self._allowed:
            require_rights(self.calls, self.namespace)
            self._allowed = True

    # --- Jobs and Services ------------------------------------------------------------------------

    def create_job(self, manifest: Json) -> JobState:
        """Create a Job by its name, once: where the answer was lost, it is looked for.

        One that is there already was made by another worker, or by us in a former life: it is ours.

        Raises:
            ClusterRefused: forbidden, not valid, no such namespace, quota spent.
            ClusterAway: no answer within the budget.
        """
        name = manifest["metadata"]["name"]

        def create(client: Any) -> Json:
            return decoded(batch(client).create_namespaced_job(self.namespace, manifest, **RAW))

        def look(client: Any) -> Json | None:
            return self._job(client, name)

        try:
            return job_state(self.calls.ask(f"create Job {name}", create, look))
        except ClusterRefused as refused:
            if refused.status != 409:
                raise
            return self.job(name) or self.create_job(manifest)

    def create_service(self, manifest: Json) -> None:
        """Create a Service by its name; one that is there already is ours.

        Raises:
            ClusterRefused, ClusterAway: see ``create_job``.
        """
        name = manifest["metadata"]["name"]

        def create(client: Any) -> Json:
            return decoded(core(client).create_namespaced_service(self.namespace, manifest, **RAW))

        with taking_for_done(409):
            self.calls.ask(f"create Service {name}", create)

    def job(self, name: str) -> JobState | None:
        """The Job of this name; None: there is none."""
        found = self.calls.ask(f"read Job {name}", lambda client: self._job(client, name) or {})
        return job_state(found) if found else None

    def jobs(self, selector: str) -> list[JobState]:
        """The Jobs with these labels."""
        return [job_state(item) for item in self.all_of("jobs", selector).items]

    def pods(self, selector: str) -> list[PodState]:
        """The pods with these labels."""
        return [pod_state(item) for item in self.all_of("pods", selector).items]

    def node_type(self, name: str) -> str | None:
        """The instance type of a node; None: it has none, is gone, or we may not read nodes."""

        def read(client: Any) -> Json:
            return decoded(core(client).read_node(name, **RAW))

        if self._nodes_are_shut:
            return None
        try:
            labels = self.calls.once(f"read node {name}", read)["metadata"].get("labels") or {}
        except MlAssetsError as error:  # it explains, and is no condition
            self._nodes_are_shut = isinstance(error, ClusterRefused) and error.status == 403
            return None
        return next((labels[label] for label in _NODE_TYPES if label in labels), None)

    def delete(self, selector: str, within: float, *, at_once: bool = False) -> None:
        """Delete the Jobs with these labels, their pods and Services, and wait until all are gone.

        Pods get their grace to save in. What a dead node keeps from ending is then deleted by
        force: what may still run there can write nothing that counts, for a newer attempt may.

        Args:
            within: seconds, the pods' grace included; as long again after the force.
            at_once: they have nothing to save: no grace.

        Raises:
            ClusterAway: something is left then, or no answer.
            ClusterRefused: we may not.
        """
        self._delete_all("jobs", selector)
        self._delete_all("services", selector)
        if at_once:
            self._delete_all("pods", selector, grace=0)
        if not self._gone(selector, within):
            self._delete_all("pods", selector, grace=0)
            if not self._gone(selector, within):
                raise ClusterAway(
                    f"{self.calls.where} still has {', '.join(self._left(selector))} in namespace"
                    f" {self.namespace}, long after they were deleted. Look at their finalizers and"
                    f" nodes; `kubectl delete jobs,pods,services -l '{selector}'`."
                )

    def delete_pod(self, name: str) -> None:
        """Delete a pod without a grace, as if its node were gone; nothing where there is none."""
        self._delete("pods", name, {"propagationPolicy": "Background", "gracePeriodSeconds": 0})

    # --- what goes on -----------------------------------------------------------------------------

    def all_of(self, kind: Listed, selector: str) -> ObjectList:
        """All objects now, asked for until there is an answer."""
        return self.calls.ask(f"list {kind}", lambda client: self._list(client, kind, selector))

    def page(self, kind: Watched, selector: str) -> ObjectList:
        """All objects now, asked for once."""
        return self.calls.once(f"list {kind}", lambda client: self._list(client, kind, selector))

    def stream(
        self, kind: Watched, selector: str, version: str, seconds: int, silence: float
    ) -> Lines:
        """Changes since a version, a JSON object a line, for so many seconds; asked for once.

        Args:
            silence: seconds without a word after which it is broken.

        Raises:
            ClusterRefused: with status 410, the version is too old.
            ClusterAway: no answer.
        """

        def watch(client: Any) -> Lines:
            return Lines(
                lister(client, kind)(
                    self.namespace,
                    label_selector=selector,
                    resource_version=version,
                    allow_watch_bookmarks=True,
                    timeout_seconds=seconds,
                    watch=True,
                    **streaming(silence),
                )
            )

        return self.calls.once(f"watch {kind}", watch)

    def log(self, pod: str, since_seconds: int | None = None) -> Lines:
        """A pod's log as it grows, each line with its time; asked for once.

        Args:
            since_seconds: only what is younger; None: from the beginning.

        Raises:
            ClusterRefused: with status 400, no container runs yet; with 404, the pod is gone.
            ClusterAway: no answer.
        """
        since = {} if since_seconds is None else {"since_seconds": since_seconds}

        def follow(client: Any) -> Lines:
            how = {**since, **streaming(LOG_SILENCE_SECONDS), "timestamps": True}
            return Lines(
                core(client).read_namespaced_pod_log(pod, self.namespace, follow=True, **how)
            )

        return self.calls.once(f"read the log of {pod}", follow)

    # --- why something happened: an explanation that cannot be had is none, and no error ----------

    def tail(self, pod: str, lines: int) -> str:
        """The end of a pod's log; empty where there is none (any more), or none to be had."""

        def read(client: Any) -> str:
            how = {**RAW, "tail_lines": lines}
            answer = core(client).read_namespaced_pod_log(pod, self.namespace, **how)
            return bytes(answer.data).decode(errors="replace")

        with suppress(ClusterAway, ClusterRefused):
            return self.calls.ask(f"read the log of {pod}", read)
        return ""

    def cluster_events(self, uid: str) -> Sequence[KubernetesEvent]:
        """The events about an object, oldest first; asked for once."""

        def read(client: Any) -> Json:
            how = {**RAW, "field_selector": f"involvedObject.uid={uid}"}
            return decoded(core(client).list_namespaced_event(self.namespace, **how))

        with suppress(ClusterAway, ClusterRefused):
            found = [
                kubernetes_event(item) for item in self.calls.once("list events", read)["items"]
            ]
            return sorted(found, key=lambda one: one.last.timestamp() if one.last else 0.0)
        return ()

    def queue_word(self, job: JobState, queue: str) -> QueueWord | None:
        """Return what Kueue says, asked once, of a Job that it has not admitted; None: nothing."""
        with suppress(ClusterAway, ClusterRefused):
            workloads = self._kueue("workloads", label_selector=f"{_JOB_UID}={job.uid}")
            for workload in workloads["items"] if workloads else ():
                for one in (workload.get("status") or {}).get("conditions") or ():
                    if one["type"] == "QuotaReserved" and one["status"] == "False":
                        said = one.get("message") or ""
                        return QueueWord(said, missing="doesn't exist" in said)
            if self._kueue("localqueues", queue) is None:
                said = f"there is no LocalQueue {queue} in {self.namespace}"
                return QueueWord(said, missing=True)
        return None

    def _kueue(self, plural: str, name: str | None = None, **asked: str) -> Json | None:
        """An object of Kueue, or a list of them, in the newest version that is served."""
        for version in _KUEUE_VERSIONS:
            where = (_KUEUE, version, self.namespace, plural)

            def read(client: Any, where: tuple[str, ...] = where) -> Json:
                custom = extensions(client)
                if name is not None:
                    return decoded(custom.get_namespaced_custom_object(*where, name, **RAW))
                return decoded(custom.list_namespaced_custom_object(*where, **asked, **RAW))

            with taking_for_done(404):
                return self.calls.once(f"read {plural} of Kueue", read)
        return None

    # --- single calls -----------------------------------------------------------------------------

    def _list(self, client: Any, kind: Listed, selector: str) -> ObjectList:
        found = decoded(lister(client, kind)(self.namespace, label_selector=selector, **RAW))
        return ObjectList(found["items"], found["metadata"]["resourceVersion"])

    def _job(self, client: Any, name: str) -> Json | None:
        from kubernetes.client import ApiException

        try:
            return decoded(batch(client).read_namespaced_job(name, self.namespace, **RAW))
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    def _delete_all(self, kind: Listed, selector: str, grace: int | None = None) -> None:
        for item in self.all_of(kind, selector).items:
            meta = item["metadata"]
            if grace is None and meta.get("deletionTimestamp"):
                continue
            body = {"propagationPolicy": "Foreground" if kind == "jobs" else "Background"}
            body |= {} if grace is None else {"gracePeriodSeconds": grace}
            self._delete(kind, meta["name"], body)

    def _delete(self, kind: Listed, name: str, body: Json) -> None:
        def delete(client: Any) -> Json:
            return decoded(deleter(client, kind)(name, self.namespace, body=body, **RAW))

        with taking_for_done(404):
            self.calls.ask(f"delete {name} of {kind}", delete)

    def _gone(self, selector: str, within: float) -> bool:
        """Wait until nothing with these labels is left."""
        deadline = time.monotonic() + within
        wait, longest = _BETWEEN_LOOKS
        while self._left(selector):
            if time.monotonic() > deadline:
                return False
            time.sleep(wait)
            wait = min(wait * 1.5, longest)
        return True

    def _left(self, selector: str) -> list[str]:
        kinds: tuple[Listed, ...] = ("jobs", "pods", "services")
        return [
            f"{kind[:-1]} {item['metadata']['name']}"
            for kind in kinds
            for item in self.all_of(kind, selector).items
        ]
