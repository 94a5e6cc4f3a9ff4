"""The informer: a cache of the Jobs and pods of a selector, kept by two renewed watches.

It makes tens of calls an hour: a watch is renewed every few minutes from where the last one ended,
and if watches fail, it polls at growing intervals.
"""

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self

from ml_assets.errors import ClusterAway, ClusterRefused, MlAssetsError
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.calls import NoAnswer, SilentStream, Trouble, told_by
from ml_assets.launch.kubernetes.observations import (
    JobState,
    Json,
    Observed,
    PodState,
    job_state,
    pod_state,
)
from ml_assets.launch.kubernetes.resources import Lines, ObjectList, Watched

WATCH_SECONDS = 600
"""Most of one watch, half of it least: then it is asked for anew, from where it ended."""
SILENCE_SECONDS = 90.0
"""A watch that says nothing for so long may be broken: Kubernetes sends a bookmark every minute."""
REFUSED_SECONDS = 900.0
"""For so long a refusal of what was allowed before may be a passing one."""
STEADY_SECONDS = 30.0
"""A watch that lasted so long was a good one."""
LONGEST_WAIT = 240.0
"""Between two looks where no watch lasts."""
_LONGEST_SILENCE = 600.0
_JOIN_SECONDS = 5.0
_GONE = 410
_UNKNOWN_US = 401


def wait_after(failures: int, longest: float) -> float:
    """Seconds to wait after so many failures in a row, not the same for everybody."""
    return min(longest, 2.0 ** min(failures - 1, 16)) * random.uniform(0.5, 1.0)


class Cache:
    """The newest state of each Job and pod; written by the watches, read by any thread.

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

    def now(self) -> Observed:
        """Everything, the lost pods first, in the order in which they were lost.

        Raises:
            MlAssetsError: the watches cannot go on.
        """
        with self._changed:
            if isinstance(self._error, MlAssetsError):
                raise self._error
            if self._error is not None:
                raise MlAssetsError(
                    "The watch of the cluster failed. This is a bug of ml_assets: please report it"
                    " with the traceback. What runs in the cluster continues."
                ) from self._error
            lost = [self._pods[uid] for uid in self._lost]
            others = [pod for uid, pod in self._pods.items() if uid not in self._lost]
            others.sort(key=lambda pod: (pod.job, pod.index or 0))
            return Observed(tuple(self._jobs.values()), (*lost, *others))

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
        """Take all objects that there are now for those known; return whether that is news."""
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


class Reflector:
    """Keeps a cache up to date on one kind of object.

    Args:
        clock: monotonic seconds.
        pause: waits so many seconds, or until it is to stop.
    """

    def __init__(
        self,
        api: KubernetesApi,
        kind: Watched,
        selector: str,
        cache: Cache,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._api = api
        self._kind: Watched = kind
        self._selector = selector
        self._cache = cache
        self._clock = clock
        self._pause = pause
        self._version: str | None = None
        """The version of the last change that is known; None: a look is due."""
        self._silence = SILENCE_SECONDS
        self._was_silent = False
        self._broken = 0
        """Watches in a row that did not last."""
        self._away = 0
        """Looks in a row that failed."""
        self._heard = clock()
        self.trouble: MlAssetsError | None = None
        """Why the last look failed; None: the cluster answers."""
        self._stream: Lines | None = None
        self._stopped = False

    def begin(self) -> None:
        """The first look; its errors are the caller's."""
        self._take(self._api.all_of(self._kind, self._selector))

    def run(self) -> None:
        """Follow until it is stopped."""
        try:
            while not self._stopped:
                self.turn()
        except Exception as error:
            if not self._stopped:
                self._cache.fail(error)

    def stop(self) -> None:
        """End it, from any thread."""
        self._stopped = True
        if self._stream is not None:
            self._stream.close()

    def silent(self) -> float:
        """Seconds since the cluster last said something."""
        return self._clock() - self._heard

    def turn(self) -> None:
        """Look, where a watch cannot go on from what is known; then watch while it lasts.

        Raises:
            ClusterAway: it has refused us for longer than that can be a passing thing.
        """
        if self._version is not None or self._look():
            began = self._clock()
            error = self._follow(self._version or "")
            self._after(error, self._clock() - began)

    def _look(self) -> bool:
        try:
            self._take(self._api.page(self._kind, self._selector))
        except (ClusterRefused, NoAnswer) as error:
            self._bear(error)
            self.trouble = error
            self._away += 1
            unreachable = isinstance(error, NoAnswer) and not error.trouble.status
            self._rest(error, wait_after(self._away, 10 if unreachable else 60))
            return False
        self._away = 0
        return True

    def _take(self, page: ObjectList) -> None:
        news = self._cache.put_all(self._kind, page.items)
        self._version, self._heard, self.trouble = page.version, self._clock(), None
        if self._was_silent:  # rightly, where nothing had happened: then be more patient
            longer = min(self._silence * 2, _LONGEST_SILENCE)
            self._silence, self._was_silent = SILENCE_SECONDS if news else longer, False

    def _follow(self, version: str) -> MlAssetsError | None:
        """Watch until it ends; why, if that was before its time."""
        seconds = int(WATCH_SECONDS * random.uniform(0.5, 1.0))
        try:
            stream = self._api.stream(self._kind, self._selector, version, seconds, self._silence)
            self._stream, self._heard = stream, self._clock()
            try:
                if self._stopped:  # while it was opened: nobody else will close it
                    return None
                for line in stream:
                    self._read(json.loads(line))
            finally:
                stream.close()
        except (ClusterRefused, NoAnswer) as error:
            return error
        except json.JSONDecodeError as error:
            trouble = Trouble(f"a line is not JSON ({error})", done=True)
            return NoAnswer(f"The watch of {self._kind} broke off: {trouble.told}.", trouble)
        return None

    def _read(self, change: Json) -> None:
        kind, item = change["type"], change["object"]
        if kind == "ERROR":
            raise told_by(item)
        if kind == "DELETED":
            self._cache.drop(self._kind, item)
        elif kind != "BOOKMARK":
            self._cache.put(self._kind, item)
        self._version, self._heard = item["metadata"]["resourceVersion"], self._clock()

    def _after(self, error: MlAssetsError | None, lasted: float) -> None:
        """What a watch that ended means for the next one."""
        if self._stopped:
            return
        if isinstance(error, SilentStream):
            self._version, self._was_silent = None, True
            return
        if lasted >= STEADY_SECONDS:
            self._broken = 0
            if error is None:  # its time was over
                return
        self._broken += 1
        gone = isinstance(error, ClusterRefused) and error.status == _GONE
        if gone or self._broken > 1:  # what is known is too old, or watches do not last
            self._version = None
        if gone and self._broken == 1:
            return
        if not gone:
            self._bear(error)
        self._rest(error, wait_after(self._broken, LONGEST_WAIT))

    def _rest(self, error: MlAssetsError | None, seconds: float) -> None:
        asked = error.trouble.wait if isinstance(error, NoAnswer) else 0.0
        self._pause(max(asked, seconds))

    def _bear(self, error: MlAssetsError | None) -> None:
        """A refusal of what was allowed before may pass: a role that is replaced, a new token."""
        refused = isinstance(error, ClusterRefused)
        refused = refused or (isinstance(error, NoAnswer) and error.trouble.status == _UNKNOWN_US)
        if refused and self.silent() > REFUSED_SECONDS:
            raise ClusterAway(
                f"{error} This has lasted {REFUSED_SECONDS / 60:.0f} minutes. What runs in the "
                "cluster continues. Once access is restored, run the command again to follow it."
            ) from error


class JobInformer:
    """The Jobs and pods of a selector as they are now; a context manager.

    Raises:
        ClusterRefused, ClusterAway: the first look failed.
    """

    def __init__(self, api: KubernetesApi, selector: str) -> None:
        self._cache = Cache()
        self._stopping = threading.Event()
        kinds: tuple[Watched, ...] = ("jobs", "pods")
        self._reflectors = [
            Reflector(api, kind, selector, self._cache, pause=self._stopping.wait) for kind in kinds
        ]
        self._threads = [
            threading.Thread(target=reflector.run, name=f"watch {kind}", daemon=True)
            for reflector, kind in zip(self._reflectors, kinds, strict=True)
        ]

    def __enter__(self) -> Self:
        for reflector in self._reflectors:
            reflector.begin()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for reflector in self._reflectors:
            reflector.stop()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def now(self) -> Observed:
        """Return what is known; it costs no call.

        Raises:
            ClusterAway: it has refused us for a quarter of an hour.
        """
        return self._cache.now()

    def wait(self, seconds: float) -> bool:
        """Wait for a change, so long at most; whether there was one."""
        return self._cache.wait(seconds)

    def trouble(self) -> MlAssetsError | None:
        """Return why what is known is old: the cluster does not answer; None: it does."""
        return next(
            (reflector.trouble for reflector in self._reflectors if reflector.trouble is not None),
            None,
        )
