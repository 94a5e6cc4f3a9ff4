"""Kueue's side of a Job with a queue name: suspended until its LocalQueue lets it run.

There is no quota here: a LocalQueue that exists and is not stopped admits what comes, to the nodes
of the first flavor of its ClusterQueue, as far as those two exist and its taints are tolerated.
"""

import hashlib

from ml_assets_tests.servers.kubernetes import admission
from ml_assets_tests.servers.kubernetes.clock import stamp
from ml_assets_tests.servers.kubernetes.errors import ApiError, Json
from ml_assets_tests.servers.kubernetes.events import EventRecorder
from ml_assets_tests.servers.kubernetes.job_rules import condition, finished
from ml_assets_tests.servers.kubernetes.loop import Loop
from ml_assets_tests.servers.kubernetes.resources import (
    CLUSTER_QUEUES,
    FLAVORS,
    JOBS,
    LOCAL_QUEUES,
    WORKLOADS,
)
from ml_assets_tests.servers.kubernetes.scheduler import tolerates
from ml_assets_tests.servers.kubernetes.store import Change, Key, Store, clone, key_of

QUEUE = "kueue.x-k8s.io/queue-name"
_SOURCE = "batch/job-kueue-controller"


_OF_FLAVORS = ("nodeSelector", "tolerations")
"""What of a pod a flavor decides."""


def _pods_of(job: Json) -> Json:
    spec = job["spec"]
    return {"name": "main", "count": spec["parallelism"], "template": clone(spec["template"])}


def queue_of(job: Json) -> str:
    return (job["metadata"].get("labels") or {}).get(QUEUE, "")


class Kueue:
    def __init__(self, store: Store, loop: Loop, events: EventRecorder) -> None:
        self._store = store
        self._loop = loop
        self._events = events

    def notice(self, change: Change) -> None:
        if change.resource is JOBS and change.type != "DELETED" and queue_of(change.obj):
            key = key_of(change.obj)
            self._loop.soon(("kueue", key), lambda: self._sync(key))
        elif change.resource is LOCAL_QUEUES:
            self._loop.soon("kueue all", self._sync_all)

    def preempt(self, key: Key) -> None:
        """Another workload takes the quota back: the Job is suspended, and waits again."""
        job = self._store.get(JOBS, *key)
        message = "Preempted to accommodate a workload (UID: 0) due to reclamation"
        facts = (
            ("Evicted", "True", "Preempted", message),
            ("Preempted", "True", "InCohortReclamation", message),
            ("QuotaReserved", "False", "Pending", message),
            ("Admitted", "False", "NoReservation", "The workload has no reservation"),
        )
        self._say(job, *facts)
        before = self._workload(job)["spec"]["podSets"][0]["template"]["spec"]

        def stop(new: Json) -> None:
            new["spec"]["suspend"] = True
            for field in _OF_FLAVORS:  # as whoever made the Job said
                new["spec"]["template"]["spec"].pop(field, None)
            kept = {field: clone(before[field]) for field in _OF_FLAVORS if field in before}
            new["spec"]["template"]["spec"].update(kept)

        self._store.change(JOBS, *key, stop)

    def _sync_all(self) -> None:
        for job in self._store.all(JOBS):
            if queue_of(job):
                self._sync(key_of(job))

    def _sync(self, key: Key) -> None:
        job = self._store.find(JOBS, *key)
        if job is None or finished(job) or not job["spec"]["suspend"]:
            return
        name = queue_of(job)
        workload = self._workload(job)
        if condition(workload.get("status") or {}, "Preempted"):
            return
        queue = self._store.find(LOCAL_QUEUES, key[0], name)
        if queue is None:
            self._inadmissible(job, f"LocalQueue {name} doesn't exist")
        elif (queue.get("spec") or {}).get("stopPolicy", "None") != "None":
            self._inadmissible(job, f"LocalQueue {name} is stopped")
        else:
            self._assign(job, (queue.get("spec") or {}).get("clusterQueue", ""))

    def _assign(self, job: Json, cluster_queue: str) -> None:
        flavor = self._flavor(cluster_queue)
        for taint in flavor.get("nodeTaints") or []:
            if not tolerates(job["spec"]["template"], taint):
                no = f"couldn't assign flavors to pod set main: untolerated taint {taint}"
                self._say(job, ("QuotaReserved", "False", "Pending", no))
                return
        told = f"Quota reserved in ClusterQueue {cluster_queue}"
        self._say(
            job,
            ("QuotaReserved", "True", "QuotaReserved", told),
            ("Admitted", "True", "Admitted", "The workload is admitted"),
        )
        self._events.normal(job, _SOURCE, "Started", f"Admitted by clusterQueue {cluster_queue}")
        self._start(key_of(job), flavor)

    def _inadmissible(self, job: Json, why: str) -> None:
        self._say(job, ("QuotaReserved", "False", "Inadmissible", why))

    def _flavor(self, cluster_queue: str) -> Json:
        """The spec of a ClusterQueue's first flavor; empty where one of them is not there."""
        queue = self._store.find(CLUSTER_QUEUES, "", cluster_queue) or {"spec": {}}
        groups = queue["spec"].get("resourceGroups") or []
        names = [flavor["name"] for group in groups for flavor in group["flavors"]]
        flavor = self._store.find(FLAVORS, "", names[0]) if names else None
        return flavor["spec"] if flavor else {}

    def _start(self, key: Key, flavor: Json) -> None:
        """Told where to run while it is still suspended, then released: in one change."""

        def edit(job: Json) -> None:
            pod = job["spec"]["template"]["spec"]
            if labels := flavor.get("nodeLabels"):
                pod["nodeSelector"] = {**(pod.get("nodeSelector") or {}), **labels}
            if tolerations := flavor.get("tolerations"):
                pod["tolerations"] = [*(pod.get("tolerations") or []), *tolerations]
            job["spec"]["suspend"] = False

        self._store.change(JOBS, *key, edit)

    def _workload(self, job: Json) -> Json:
        meta = job["metadata"]
        digest = hashlib.sha256(meta["uid"].encode()).hexdigest()[:5]
        name = f"job-{meta['name'][:50]}-{digest}"
        found = self._store.find(WORKLOADS, meta["namespace"], name)
        if found is not None:
            return found
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
        made = {
            "apiVersion": WORKLOADS.api_version,
            "kind": "Workload",
            "metadata": {
                "name": name,
                "namespace": meta["namespace"],
                "labels": {"kueue.x-k8s.io/job-uid": meta["uid"]},
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": {"queueName": queue_of(job), "active": True, "podSets": [_pods_of(job)]},
            "status": {},
        }
        try:
            made = admission.create(self._store, WORKLOADS, made)
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            return made
        message = f"Created Workload: {meta['namespace']}/{name}"
        self._events.normal(job, _SOURCE, "CreatedWorkload", message)
        return made

    def _say(self, job: Json, *facts: tuple[str, str, str, str]) -> None:
        now = stamp(self._store.clock.now())

        def edit(workload: Json) -> None:
            status = workload.setdefault("status", {})
            for kind, value, reason, message in facts:
                new = {"type": kind, "status": value, "reason": reason, "message": message}
                old = [c for c in status.get("conditions") or [] if c["type"] == kind]
                same = old and all(old[0].get(field) == new[field] for field in new)
                new["lastTransitionTime"] = old[0]["lastTransitionTime"] if same else now
                others = [c for c in status.get("conditions") or [] if c["type"] != kind]
                status["conditions"] = [*others, new]

        self._store.change(WORKLOADS, *key_of(self._workload(job)), edit)
