"""The kubelet: bound pods become local processes; what they do becomes their status."""

from collections.abc import Iterator

from ml_assets_tests.servers.kubernetes import deletion, errors, logs, volumes
from ml_assets_tests.servers.kubernetes.clock import read_stamp
from ml_assets_tests.servers.kubernetes.errors import ApiError, Json
from ml_assets_tests.servers.kubernetes.events import EventRecorder
from ml_assets_tests.servers.kubernetes.job_rules import TERMINAL
from ml_assets_tests.servers.kubernetes.loop import Loop
from ml_assets_tests.servers.kubernetes.pod_run import Container, PodRun
from ml_assets_tests.servers.kubernetes.quantities import memory_limit
from ml_assets_tests.servers.kubernetes.resources import CONFIG_MAPS, PODS, SECRETS, SERVICES
from ml_assets_tests.servers.kubernetes.starting import Starter, part_of
from ml_assets_tests.servers.kubernetes.store import Change, Store

_SOURCE = "kubelet"
_WEIGH_EVERY = 0.5
"""Seconds of our own clock."""
_NAME_WAIT = 2.0
"""Seconds that a first start waits for the Service that its names need; DNS is asked later."""


class Kubelet:
    def __init__(self, store: Store, loop: Loop, events: EventRecorder, starter: Starter) -> None:
        self._store = store
        self._loop = loop
        self._events = events
        self._starter = starter
        self._runs: dict[str, PodRun] = {}
        self._abandoned: list[PodRun] = []

    def notice(self, change: Change) -> None:
        if change.resource is PODS and change.obj["spec"].get("nodeName"):
            self._soon(change.obj["metadata"]["uid"], change.obj)
        elif change.resource in (SECRETS, CONFIG_MAPS, SERVICES) and change.type != "DELETED":
            self._loop.soon("waiting pods", self._look_again)

    def stop(self) -> None:
        """Kill whatever runs, and wait until it has ended. After the loop has stopped."""
        _end_all([*self._runs.values(), *self._abandoned])

    def run_of(self, uid: str) -> PodRun | None:
        return self._runs.get(uid)

    # --- one pod ----------------------------------------------------------------------------------

    def _soon(self, uid: str, pod: Json | None = None) -> None:
        self._loop.soon(("kubelet", uid), lambda: self._sync(uid, pod))

    def _after(self, seconds: float, uid: str) -> None:
        self._loop.after(seconds, ("kubelet", uid), lambda: self._sync(uid, None))

    def _look_again(self) -> None:
        for uid, run in list(self._runs.items()):
            if not run.finished:
                self._sync(uid, None)

    def _sync(self, uid: str, bound: Json | None) -> None:
        run = self._runs.get(uid)
        if run is None:
            if bound is None or bound["status"].get("phase") in TERMINAL:
                return
            if uid in {abandoned.uid for abandoned in self._abandoned}:
                return
            run = PodRun(bound, self._starter.root / uid[:8], self._store.clock)
            self._runs[uid] = run
        pod = self._store.find(PODS, *run.key)
        if pod is None or pod["metadata"]["uid"] != uid:
            self._forget(run)
            return
        run.pod = pod
        for container in run.take_exits():
            self._ended(run, container)
        if "deletionTimestamp" in pod["metadata"] or run.ending:
            self._end(run)
        elif not run.finished:
            self._advance(run)
        self._tell(run)

    def _forget(self, run: PodRun) -> None:
        """The pod is gone from the API (deleted by force, or after its end)."""
        run.ending = True
        run.take_exits()
        for container in run.running:
            assert container.process is not None
            container.process.kill()
        if not run.running:
            run.clean()
            self._runs.pop(run.uid, None)

    def _tell(self, run: PodRun) -> None:
        """Write the status; a pod that is being deleted goes once nothing of it runs."""

        def edit(new: Json) -> None:
            if new["metadata"]["uid"] == run.uid and new["status"]["phase"] not in TERMINAL:
                new["status"] = run.status(new["status"])

        self._store.change(PODS, *run.key, edit)
        if "deletionTimestamp" in run.pod["metadata"] and run.finished:
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": run.uid}}
            try:
                deletion.delete(self._store, PODS, run.key, options)
            except ApiError as error:
                if error.code not in (404, 409):
                    raise

    # --- starting ---------------------------------------------------------------------------------

    def _advance(self, run: PodRun) -> None:
        """Start what comes next: volumes, init containers one by one, then the containers."""
        if run.winding_down:
            run.ending = run.finished = not run.running
            return
        if not self._has_volumes(run) or not self._has_names(run):
            return
        for init in run.inits:
            if init.is_sidecar:
                if not init.is_running and not self._start(run, init):
                    return
            elif init.exit_code is None:
                if not init.is_running:
                    self._start(run, init)
                return
            elif init.exit_code != 0:
                self._finish(run)
                return
        for container in run.mains:
            if container.process is None and container.ended is None:
                self._start(run, container)
        if all(container.ended for container in run.mains) and not self._restarting(run):
            self._finish(run)

    def _restarting(self, run: PodRun) -> bool:
        return any(container.waiting[0] == "CrashLoopBackOff" for container in run.mains)

    def _finish(self, run: PodRun) -> None:
        """The containers have ended: the sidecars go, then the pod is Succeeded or Failed."""
        run.winding_down = True
        left = run.running
        for container in left:
            assert container.process is not None
            container.process.terminate()
        if left:
            grace = run.pod["spec"]["terminationGracePeriodSeconds"]
            self._loop.after(grace, ("kill", run.uid), lambda: _kill(left))
        run.ending = run.finished = not left

    def _has_volumes(self, run: PodRun) -> bool:
        if run.volumes is None:
            try:
                run.volumes = volumes.make(self._store, run.pod, run.root / "v")
            except volumes.MountError as error:
                self._events.warning(run.pod, _SOURCE, "FailedMount", str(error))
                return False
        return True

    def _has_names(self, run: PodRun) -> bool:
        """Whether the names of the Job's pods resolve, or have had their time to."""
        if (
            not run.pod["spec"].get("subdomain")
            or run.service_waited
            or self._starter.service_of(run)
        ):
            return True
        age = (self._store.clock.now() - run.began).total_seconds()
        if age < _NAME_WAIT:
            self._after(_NAME_WAIT - age + 0.001, run.uid)
            return False
        run.service_waited = True
        return True

    def _start(self, run: PodRun, container: Container) -> bool:
        started = self._starter.start(run, container, lambda: self._soon(run.uid))
        if container.is_running and memory_limit(container.spec) is not None:
            self._weigh(run, container)
        return started

    def _weigh(self, run: PodRun, container: Container) -> None:
        """Look at a container's memory now and then; over its limit it is killed."""
        process, limit = container.process, memory_limit(container.spec)
        if process is None or process.exit_code is not None or limit is None:
            return
        if process.memory() > limit:
            process.run_out_of_memory()
            return
        again = _WEIGH_EVERY * self._store.clock.speed
        self._loop.after(again, ("weigh", process.id), lambda: self._weigh(run, container))

    # --- ending -----------------------------------------------------------------------------------

    def _ended(self, run: PodRun, container: Container) -> None:
        """One has ended: with the policy OnFailure it is started again, later and later."""
        again = run.restart_policy == "Always" or (
            run.restart_policy == "OnFailure" and container.exit_code != 0
        )
        going = run.ending or "deletionTimestamp" in run.pod["metadata"]
        if going or not again or container.is_sidecar:
            return
        container.previous = container.ended
        if not container.restarts:  # the first time at once
            _make_ready(container)
            return
        wait = min(300.0, 10.0 * 2 ** (container.restarts - 1))
        name = container.name
        told = f"back-off {wait:.0f}s restarting failed container={name}"
        container.wait_for("CrashLoopBackOff", told)
        key = ("restart", run.uid, name)
        self._loop.after(wait, key, lambda: self._restart(run, container))
        message = f"Back-off restarting failed container {name} in pod {run.key[1]}"
        self._events.warning(run.pod, _SOURCE, "BackOff", message, part_of(container))

    def _restart(self, run: PodRun, container: Container) -> None:
        if run.ending or container.waiting[0] != "CrashLoopBackOff":
            return
        _make_ready(container)
        self._sync(run.uid, None)

    def _end(self, run: PodRun) -> None:
        """TERM once, KILL when the grace is over; finished when nothing runs."""
        first = not run.ending
        run.ending = True
        grace = run.pod["metadata"].get("deletionGracePeriodSeconds", 0)
        if run.running and (run.grace is None or grace < run.grace):
            run.grace = grace
            left = run.running
            if first:
                for container in left:
                    assert container.process is not None
                    container.process.terminate()
                    message = f"Stopping container {container.name}"
                    self._events.normal(run.pod, _SOURCE, "Killing", message, part_of(container))
            self._loop.after(self._left(run, grace), ("kill", run.uid), lambda: _kill(left))
        run.finished = not run.running

    def _left(self, run: PodRun, grace: float) -> float:
        """What is left of the grace if time was moved since the deletion; stamps are rounded."""
        end = run.pod["metadata"].get("deletionTimestamp")
        if end is None:
            return grace
        left = (read_stamp(end) - self._store.clock.now()).total_seconds() + 1
        return min(grace, left)

    # --- what a test does to a pod ----------------------------------------------------------------

    def evict(self, uid: str, message: str) -> None:
        """The node is short of something: the containers are killed, the pod is Failed, Evicted."""

        def now() -> None:
            run = self._runs[uid]
            run.verdict = {"phase": "Failed", "reason": "Evicted", "message": message}
            run.ending = True
            run.grace = 0
            self._events.warning(run.pod, _SOURCE, "Evicted", message)
            _kill(run.running)
            self._sync(uid, None)

        self._loop.soon(("evict", uid), now)

    def abandon(self, uid: str) -> list[int]:
        """Lose sight of a pod, whose processes run on; returns their ids."""
        run = self._runs[uid]
        self._abandoned.append(run)  # before it is forgotten: nothing may run it anew
        del self._runs[uid]
        return [c.process.pid for c in run.running if c.process]

    def end_abandoned(self) -> None:
        """The node that was cut off is switched off."""
        while self._abandoned:
            run = self._abandoned.pop()
            _end_all([run])
            run.clean()

    def log(self, pod: Json, name: str, query: logs.LogQuery, previous: bool) -> Iterator[bytes]:
        """A container's log; refused, in a real kubelet's words, before it has one."""
        run = self._runs.get(pod["metadata"]["uid"])
        container = run.container(name) if run else None
        where = f'container "{name}" in pod "{pod["metadata"]["name"]}"'
        runs = container.runs if container else []
        if previous:
            if len(runs) < 2:
                raise errors.bad_request(f"previous terminated {where} not found")
            return runs[-2].log.read(query)
        if not runs:
            reason = container.waiting[0] if container else "ContainerCreating"
            if container and container.ended:
                raise errors.bad_request(f"{where} is terminated")
            raise errors.bad_request(f"{where} is waiting to start: {reason}")
        return runs[-1].log.read(query)


def _make_ready(container: Container) -> None:
    """For its next start."""
    container.restarts += 1
    container.process, container.ended = None, None
    container.wait_for("ContainerCreating")


def _end_all(runs: list[PodRun]) -> None:
    processes = [process for run in runs for c in run.containers for process in c.runs]
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def _kill(containers: list[Container]) -> None:
    for container in containers:
        if container.process:
            container.process.kill()
