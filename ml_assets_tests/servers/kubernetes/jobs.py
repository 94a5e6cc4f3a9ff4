"""The Job controller: pods made, counted and replaced, and the conditions that end a Job."""

from dataclasses import dataclass
from datetime import datetime

from ml_assets_tests.servers.kubernetes import admission, defaults, job_rules
from ml_assets_tests.servers.kubernetes.clock import read_stamp, stamp
from ml_assets_tests.servers.kubernetes.deletion import JOB_TRACKING, delete, drop_finalizer
from ml_assets_tests.servers.kubernetes.errors import ApiError, Json
from ml_assets_tests.servers.kubernetes.events import EventRecorder
from ml_assets_tests.servers.kubernetes.job_rules import Census, condition
from ml_assets_tests.servers.kubernetes.loop import Loop
from ml_assets_tests.servers.kubernetes.resources import JOBS, PODS
from ml_assets_tests.servers.kubernetes.store import (
    Change,
    Key,
    Store,
    clone,
    controller_of,
    key_of,
    owners,
)

_SOURCE = "job-controller"
_BACKOFF, _BACKOFF_MOST = 10.0, 360.0
_TIME_ENDS = "Job was active longer than specified deadline"
_TOO_MANY = "Job has reached the specified backoff limit"


@dataclass
class _Failures:
    """Failures in a row, which the wait before the next pod grows with."""

    count: int = 0
    last: float = 0.0

    def wait(self, now: float) -> float:
        if not self.count:
            return 0.0
        pause = min(_BACKOFF_MOST, _BACKOFF * 2 ** (self.count - 1))
        return max(0.0, self.last + pause - now)


class JobController:
    def __init__(self, store: Store, loop: Loop, events: EventRecorder) -> None:
        self._store = store
        self._loop = loop
        self._events = events
        self._failures: dict[str, _Failures] = {}
        self._refusals: dict[str, int] = {}

    def notice(self, change: Change) -> None:
        if change.resource is JOBS:
            self._soon(key_of(change.obj))
        elif change.resource is PODS and job_rules.is_tracked(change.obj):
            meta = change.obj["metadata"]
            for owner in owners(change.obj):
                if owner.get("controller"):
                    self._soon((meta["namespace"], owner["name"]))
            self._loop.soon(("stray pod", meta["uid"]), lambda: self._stray(key_of(change.obj)))
        elif change.resource is PODS:
            for owner in owners(change.obj):
                self._soon((change.obj["metadata"]["namespace"], owner["name"]))

    def _soon(self, key: Key, seconds: float = 0.0) -> None:
        if seconds > 0:
            self._loop.after(seconds, ("job", key), lambda: self._sync(key))
        else:
            self._loop.soon(("job", key), lambda: self._sync(key))

    def _stray(self, key: Key) -> None:
        """A pod whose Job is gone is held by nobody."""
        pod = self._store.find(PODS, *key)
        if pod is None or not job_rules.is_tracked(pod):
            return
        uid = controller_of(pod)
        if uid is None or self._store.of_uid(uid) is None:
            drop_finalizer(self._store, PODS, key, JOB_TRACKING)

    def _sync(self, key: Key) -> None:
        job = self._store.find(JOBS, *key)
        if job is None:
            return
        pods = [p for p in self._store.all(PODS, key[0]) if controller_of(p) == _uid(job)]
        if job_rules.finished(job):
            for pod in pods:
                drop_finalizer(self._store, PODS, key_of(pod), JOB_TRACKING)
            self._clean_up_later(job)
            return
        found = job_rules.census(job, pods)
        status = clone(job["status"])
        self._start_clock(job, status)
        self._count(job, status, found)
        target = condition(status, "FailureTarget") or condition(status, "SuccessCriteriaMet")
        target = target or self._end_in_sight(job, status, found)
        if target:
            for pod in found.active:
                self._delete(job, pod, keep_counting=True)
        elif "deletionTimestamp" not in job["metadata"]:
            self._adjust(job, status, found)
        self._settle(job, status, target, found)

    # --- counting ---------------------------------------------------------------------------------

    def _count(self, job: Json, status: Json, found: Census) -> None:
        """Take the pods that ended into the numbers, by way of `uncountedTerminatedPods`."""
        uid, now = _uid(job), self._store.clock.seconds()
        failures = self._failures.setdefault(uid, _Failures())
        if found.succeeded:
            failures.count = 0
        if found.failed:
            failures.count, failures.last = failures.count + len(found.failed), now
        if not found.succeeded and not found.failed:
            return
        uncounted = {"succeeded": found.succeeded, "failed": found.failed}
        status["uncountedTerminatedPods"] = {
            kind: [_uid(pod) for pod in pods] for kind, pods in uncounted.items() if pods
        }
        verdicts = [job_rules.verdict_of_policy(job, pod) for pod in found.failed]
        dooms = [why for action, why in verdicts if action == "FailJob"]
        if dooms and not condition(status, "FailureTarget"):
            self._set(status, "FailureTarget", "PodFailurePolicy", dooms[0])
        self._write(job, status)
        for pod in [*found.succeeded, *found.failed]:
            drop_finalizer(self._store, PODS, key_of(pod), JOB_TRACKING)
        counted = sum(action != "Ignore" for action, _ in verdicts)
        status["failed"] = status.get("failed", 0) + counted
        self._count_succeeded(job, status, found.succeeded)
        status["uncountedTerminatedPods"] = {}

    def _count_succeeded(self, job: Json, status: Json, succeeded: list[Json]) -> None:
        if job["spec"]["completionMode"] != "Indexed":
            status["succeeded"] = status.get("succeeded", 0) + len(succeeded)
            return
        done = job_rules.indexes_of(status.get("completedIndexes", ""))
        new = {index for pod in succeeded if (index := job_rules.index_of(pod)) is not None}
        done |= {index for index in new if index < job["spec"]["completions"]}
        status["completedIndexes"] = job_rules.indexes_text(done)
        status["succeeded"] = len(done)

    def _end_in_sight(self, job: Json, status: Json, found: Census) -> Json | None:
        """The condition that dooms or crowns the Job, once there is cause for it."""
        spec = job["spec"]
        if status.get("failed", 0) + _restarts(job, found) > spec["backoffLimit"]:
            return self._set(status, "FailureTarget", "BackoffLimitExceeded", _TOO_MANY)
        limit = spec.get("activeDeadlineSeconds")
        if limit is not None and not spec["suspend"] and status.get("startTime"):
            left = limit - (self._now() - read_stamp(status["startTime"])).total_seconds()
            if left <= 0:
                return self._set(status, "FailureTarget", "DeadlineExceeded", _TIME_ENDS)
        wanted, done = spec.get("completions"), status.get("succeeded", 0)
        enough = done >= wanted if wanted is not None else done > 0 and not found.active
        if enough:
            message = "Reached expected number of succeeded pods"
            return self._set(status, "SuccessCriteriaMet", "CompletionsReached", message)
        return None

    def _settle(self, job: Json, status: Json, target: Json | None, found: Census) -> None:
        """Write the status; the last condition comes only when no pod runs any more."""
        pods = self._store.all(PODS, job["metadata"]["namespace"])
        now = job_rules.census(job, [pod for pod in pods if controller_of(pod) == _uid(job)])
        status["uncountedTerminatedPods"] = {}
        status["terminating"] = len(now.terminating)
        status["ready"] = now.ready
        status["active"] = len(now.active)
        if not status["active"]:
            del status["active"]
        waiting = now.active or now.terminating or now.failed or now.succeeded
        if target and not waiting:
            if target["type"] == "FailureTarget":
                self._set(status, "Failed", target["reason"], target["message"])
                self._events.warning(job, _SOURCE, target["reason"], target["message"])
            else:
                self._set(status, "Complete", target["reason"], target["message"])
                status["completionTime"] = stamp(self._now())
                self._events.normal(job, _SOURCE, "Completed", "Job completed")
        self._write(job, status)

    # --- pods -------------------------------------------------------------------------------------

    def _adjust(self, job: Json, status: Json, found: Census) -> None:
        """Make the pods that are missing, delete those that are too many."""
        spec = job["spec"]
        if spec["suspend"]:
            for pod in found.active:
                self._delete(job, pod, keep_counting=False)
            self._suspend(job, status, True)
            return
        self._suspend(job, status, False)
        surplus = self._duplicates(found)
        wanted, done = spec.get("completions"), status.get("succeeded", 0)
        most = spec["parallelism"]
        if wanted is not None:
            most = min(most, wanted - done)
        elif done:
            most = min(most, len(found.active))
        keep = [p for p in found.active if p not in surplus and not _is_kept_twice(p)]
        for pod in [*surplus, *keep[max(0, most) :]]:
            self._delete(job, pod, keep_counting=False)
        blocked = len(found.terminating) if spec["podReplacementPolicy"] == "Failed" else 0
        missing = most - len(keep) - blocked
        if missing > 0:
            wait = self._failures[_uid(job)].wait(self._store.clock.seconds())
            if wait > 0:
                self._soon(key_of(job), wait)
            else:
                self._make(job, status, found, missing)

    def _duplicates(self, found: Census) -> list[Json]:
        """All but the first of the active pods that share an index."""
        seen: set[int] = set()
        surplus = []
        for pod in found.active:
            index = job_rules.index_of(pod)
            if index is not None and index in seen and not _is_kept_twice(pod):
                surplus.append(pod)
            elif index is not None:
                seen.add(index)
        return surplus

    def _make(self, job: Json, status: Json, found: Census, missing: int) -> None:
        indexes: list[int | None] = [None] * missing
        if job["spec"]["completionMode"] == "Indexed":
            taken = {job_rules.index_of(pod) for pod in found.active}
            if job["spec"]["podReplacementPolicy"] == "Failed":
                taken |= {job_rules.index_of(pod) for pod in found.terminating}
            taken |= job_rules.indexes_of(status.get("completedIndexes", ""))
            free = [i for i in range(job["spec"]["completions"]) if i not in taken]
            indexes = list(free[:missing])
        for index in indexes:
            try:
                pod = defaults.pod_of_job(job, index)
                made = admission.create(self._store, PODS, pod)
            except ApiError as error:
                self._refused(job, error)
                return
            self._refusals.pop(_uid(job), None)
            message = f"Created pod: {made['metadata']['name']}"
            self._events.normal(job, _SOURCE, "SuccessfulCreate", message)

    def _refused(self, job: Json, error: ApiError) -> None:
        """The API server did not take the pod: say so, and try again later and later."""
        self._events.warning(job, _SOURCE, "FailedCreate", f"Error creating: {error}")
        again = self._refusals.get(_uid(job), 0)
        self._refusals[_uid(job)] = again + 1
        self._soon(key_of(job), min(60.0, 2.0**again))

    def _delete(self, job: Json, pod: Json, *, keep_counting: bool) -> None:
        if not keep_counting:
            drop_finalizer(self._store, PODS, key_of(pod), JOB_TRACKING)
        try:
            delete(self._store, PODS, key_of(pod), {"preconditions": {"uid": _uid(pod)}})
        except ApiError as error:
            if error.code not in (404, 409):
                raise
            return
        message = f"Deleted pod: {pod['metadata']['name']}"
        self._events.normal(job, _SOURCE, "SuccessfulDelete", message)

    # --- time and status --------------------------------------------------------------------------

    def _start_clock(self, job: Json, status: Json) -> None:
        if job["spec"]["suspend"] or status.get("startTime"):
            return
        status["startTime"] = stamp(self._now())
        limit = job["spec"].get("activeDeadlineSeconds")
        if limit is not None:
            self._soon(key_of(job), limit + 0.001)

    def _suspend(self, job: Json, status: Json, suspend: bool) -> None:
        known = [c for c in status.get("conditions") or [] if c["type"] == "Suspended"]
        if suspend and not (known and known[0]["status"] == "True"):
            self._set(status, "Suspended", "JobSuspended", "Job suspended")
            status.pop("startTime", None)
            self._events.normal(job, _SOURCE, "Suspended", "Job suspended")
        elif not suspend and known and known[0]["status"] == "True":
            self._set(status, "Suspended", "JobResumed", "Job resumed", "False")
            self._events.normal(job, _SOURCE, "Resumed", "Job resumed")

    def _clean_up_later(self, job: Json) -> None:
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        if seconds is None or "deletionTimestamp" in job["metadata"]:
            return
        ended = condition(job["status"], "Complete") or condition(job["status"], "Failed")
        assert ended is not None
        age = (self._now() - read_stamp(ended["lastTransitionTime"])).total_seconds()
        if age >= seconds:
            options = {"propagationPolicy": "Foreground", "preconditions": {"uid": _uid(job)}}
            delete(self._store, JOBS, key_of(job), options)
        else:
            self._soon(key_of(job), seconds - age + 0.001)

    def _set(self, status: Json, kind: str, reason: str, message: str, value: str = "True") -> Json:
        now = stamp(self._now())
        new = {
            "type": kind,
            "status": value,
            "lastProbeTime": now,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }
        others = [c for c in status.get("conditions") or [] if c["type"] != kind]
        status["conditions"] = [*others, new]
        return new

    def _write(self, job: Json, status: Json) -> None:
        kept = {key: value for key, value in status.items() if value != 0 or key in _SHOWN_ZERO}

        def edit(new: Json) -> None:
            if new["metadata"]["uid"] == _uid(job):
                new["status"] = clone(kept)

        self._store.change(JOBS, *key_of(job), edit)

    def _now(self) -> datetime:
        return self._store.clock.now()


_SHOWN_ZERO = ("ready", "terminating")


def _uid(obj: Json) -> str:
    return obj["metadata"]["uid"]


def _restarts(job: Json, found: Census) -> int:
    """Restarts in place count against the limit, too."""
    if job["spec"]["template"]["spec"]["restartPolicy"] != "OnFailure":
        return 0
    return sum(
        container.get("restartCount", 0)
        for pod in found.active
        for container in pod["status"].get("containerStatuses") or []
    )


def _is_kept_twice(pod: Json) -> bool:
    return job_rules.TWO_OF_ONE_INDEX in (pod["metadata"].get("annotations") or {})
