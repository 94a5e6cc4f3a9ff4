"""Kueue's side of a Job with a queue name: suspended until its LocalQueue lets it run.

There is no quota here: a LocalQueue that exists and is not stopped admits what comes.
"""

import hashlib

from ml_assets_tests.launch.kubernetes.server import admission
from ml_assets_tests.launch.kubernetes.server.clock import stamp
from ml_assets_tests.launch.kubernetes.server.errors import ApiError, Json
from ml_assets_tests.launch.kubernetes.server.events import EventRecorder
from ml_assets_tests.launch.kubernetes.server.job_rules import condition, finished
from ml_assets_tests.launch.kubernetes.server.loop import Loop
from ml_assets_tests.launch.kubernetes.server.resources import JOBS, LOCAL_QUEUES, WORKLOADS
from ml_assets_tests.launch.kubernetes.server.store import Change, Key, Store, key_of

QUEUE = "kueue.x-k8s.io/queue-name"
_SOURCE = "batch/job-kueue-controller"


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
        self._suspend(key, True)

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
            cluster_queue = (queue.get("spec") or {}).get("clusterQueue", "")
            told = f"Quota reserved in ClusterQueue {cluster_queue}"
            self._say(
                job,
                ("QuotaReserved", "True", "QuotaReserved", told),
                ("Admitted", "True", "Admitted", "The workload is admitted"),
            )
            self._events.normal(
                job, _SOURCE, "Started", f"Admitted by clusterQueue {cluster_queue}"
            )
            self._suspend(key, False)

    def _inadmissible(self, job: Json, why: str) -> None:
        self._say(job, ("QuotaReserved", "False", "Inadmissible", why))

    def _suspend(self, key: Key, suspend: bool) -> None:
        def edit(job: Json) -> None:
            job["spec"]["suspend"] = suspend

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
            "spec": {"queueName": queue_of(job), "active": True, "podSets": []},
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
