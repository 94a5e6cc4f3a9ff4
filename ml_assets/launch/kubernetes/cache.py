"""What is known of the Jobs and pods of a selector: the newest state of each, and nothing older."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from ml_assets.errors import MlAssetsError
from ml_assets.launch.kubernetes.observations import (
    JobState,
    Json,
    PodState,
    Seen,
    job_state,
    pod_state,
)
from ml_assets.launch.kubernetes.resources import Watched


class Board:
    """Written by the watches, read by who follows the Jobs; for any thread.

    A pod that went away is kept as it was seen last while its Job is there: why it went is told
    from that.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, JobState] = {}
        self._pods: dict[str, PodState] = {}
        self._lost: list[str] = []
        """The uids of lost pods, in the order in which that was seen."""
        self._changed = threading.Condition()
        self._changes = 0
        self._error: Exception | None = None

    def now(self) -> Seen:
        """Everything, the lost pods first, in the order in which they were lost.

        Raises:
            MlAssetsError: the watches cannot go on.
        """
        with self._changed:
            if isinstance(self._error, MlAssetsError):
                raise self._error
            if self._error is not None:
                raise MlAssetsError("The watch of the cluster failed: a bug.") from self._error
            lost = [self._pods[uid] for uid in self._lost]
            others = [pod for uid, pod in self._pods.items() if uid not in self._lost]
            others.sort(key=lambda pod: (pod.job, pod.index or 0))
            return Seen(tuple(self._jobs.values()), (*lost, *others))

    def wait(self, seconds: float) -> bool:
        """Wait for a change, so long at most; whether there was one."""
        with self._changed:
            before = self._changes
            return self._changed.wait_for(lambda: self._changes != before, seconds)

    def fail(self, error: Exception) -> None:
        """Whoever asks next gets this error."""
        with self._changed:
            self._error = error
            self._tell()

    def put_all(self, kind: Watched, items: Sequence[Json]) -> bool:
        """These are all there are now; whether that is news."""
        with self._changed:
            before = (dict(self._jobs), dict(self._pods))
            known = self._jobs if kind == "jobs" else self._pods
            for uid in known.keys() - {item["metadata"]["uid"] for item in items}:
                self._drop(kind, uid)
            for item in items:
                self._put(kind, item)
            if news := before != (self._jobs, self._pods):
                self._tell()
            return news

    def put(self, kind: Watched, item: Json) -> None:
        """This one was made, or changed."""
        with self._changed:
            self._put(kind, item)
            self._tell()

    def drop(self, kind: Watched, item: Json) -> None:
        """This one was deleted; its last state tells why."""
        with self._changed:
            self._put(kind, item)
            self._drop(kind, item["metadata"]["uid"])
            self._tell()

    def _put(self, kind: Watched, item: Json) -> None:
        if kind == "jobs":
            job = job_state(item)
            self._jobs[job.uid] = job
        else:
            self._keep(pod_state(item))

    def _drop(self, kind: Watched, uid: str) -> None:
        if kind == "pods":
            pod = self._pods[uid]
            if pod.job in {job.name for job in self._jobs.values()}:
                self._keep(replace(pod, gone=True))
            else:
                self._forget(uid)
            return
        job = self._jobs.pop(uid)
        for pod in [pod for pod in self._pods.values() if pod.gone and pod.job == job.name]:
            self._forget(pod.uid)

    def _keep(self, pod: PodState) -> None:
        self._pods[pod.uid] = pod
        if pod.lost and pod.uid not in self._lost:
            self._lost.append(pod.uid)

    def _forget(self, uid: str) -> None:
        del self._pods[uid]
        if uid in self._lost:
            self._lost.remove(uid)

    def _tell(self) -> None:
        self._changes += 1
        self._changed.notify_all()
