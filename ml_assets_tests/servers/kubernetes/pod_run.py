"""What the kubelet knows of a pod that it runs, and the status that it tells of it."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from ml_assets_tests.servers.kubernetes.clock import Clock, stamp
from ml_assets_tests.servers.kubernetes.environment import address
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.images import resolved
from ml_assets_tests.servers.kubernetes.job_rules import index_of
from ml_assets_tests.servers.kubernetes.processes import ContainerProcess
from ml_assets_tests.servers.kubernetes.store import Key, clone, key_of


@dataclass
class Container:
    spec: Json
    is_init: bool
    waiting: tuple[str, str]
    process: ContainerProcess | None = None
    ended: Json | None = None
    """The state `terminated` of the last run."""
    previous: Json | None = None
    restarts: int = 0
    image_tries: int = 0
    image_due: float = 0.0
    """When the next pull is tried, in the cluster's seconds."""
    message_file: Path | None = None
    runs: list[ContainerProcess] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.spec["name"]

    @property
    def is_sidecar(self) -> bool:
        return self.is_init and self.spec.get("restartPolicy") == "Always"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.ended is None

    @property
    def exit_code(self) -> int | None:
        return self.ended["exitCode"] if self.ended else None

    def wait_for(self, reason: str, message: str = "") -> None:
        self.waiting = (reason, message)

    def state(self) -> Json:
        if self.ended and self.waiting[0] != "CrashLoopBackOff":
            return {"terminated": self.ended}
        if self.is_running:
            assert self.process is not None
            return {"running": {"startedAt": stamp(self.process.started)}}
        reason, message = self.waiting
        return {"waiting": {"reason": reason, **({"message": message} if message else {})}}

    def status(self) -> Json:
        started = self.is_running
        ready = started or (self.is_init and not self.is_sidecar and self.exit_code == 0)
        found = {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": resolved(self.spec["image"]) if self.process else "",
            "state": self.state(),
            "lastState": {"terminated": self.previous} if self.previous else {},
            "ready": ready,
            "started": started,
            "restartCount": self.restarts,
        }
        if self.process:
            found["containerID"] = f"process://{self.process.id}"
        return found


class PodRun:
    """One pod on this machine, from the moment it is bound."""

    def __init__(self, pod: Json, root: Path, clock: Clock) -> None:
        self.key: Key = key_of(pod)
        self.uid: str = pod["metadata"]["uid"]
        self.pod = pod
        self.root = root
        self.clock = clock
        self.began = clock.now()
        self.volumes: dict[str, Path] | None = None
        self.service_waited = False
        self.verdict: Json = {}
        """Phase, reason and message that the kubelet gives itself (an eviction)."""
        self.ending = False
        """Nothing is started any more."""
        self.winding_down = False
        """The containers have ended; native sidecars are being stopped."""
        self.grace: int | None = None
        self.finished = False
        spec = pod["spec"]
        first = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
        self.inits = [Container(c, True, (first, "")) for c in spec.get("initContainers") or []]
        self.mains = [Container(c, False, (first, "")) for c in spec["containers"]]

    @property
    def containers(self) -> list[Container]:
        return [*self.inits, *self.mains]

    @property
    def running(self) -> list[Container]:
        return [container for container in self.containers if container.is_running]

    @property
    def restart_policy(self) -> str:
        return self.pod["spec"]["restartPolicy"]

    def container(self, name: str) -> Container:
        return next(c for c in self.containers if c.name == name)

    def take_exits(self) -> list[Container]:
        """Note which processes have ended since the last time."""
        found = []
        for container in self.containers:
            process = container.process
            if process is None or container.ended or process.exit_code is None:
                continue
            reason = "Completed" if process.exit_code == 0 else "Error"
            ended = {
                "exitCode": process.exit_code,
                "reason": "OOMKilled" if process.out_of_memory else reason,
                "startedAt": stamp(process.started),
                "finishedAt": stamp(process.ended or self.clock.now()),
                "containerID": f"process://{process.id}",
            }
            if message := _last_words(container):
                ended["message"] = message
            container.ended = ended
            found.append(container)
        return found

    def phase(self) -> str:
        if self.verdict and self.finished:
            return self.verdict["phase"]
        if self.running or not self.finished:
            started = any(container.process or container.ended for container in self.mains)
            return "Running" if started else "Pending"
        failed_init = any(c.exit_code not in (0, None) for c in self.inits if not c.is_sidecar)
        done = all(container.exit_code == 0 for container in self.mains)
        return "Succeeded" if done and not failed_init else "Failed"

    def status(self, before: Json) -> Json:
        """The pod's status as it is now; conditions of others (DisruptionTarget) are kept."""
        phase = self.phase()
        number = index_of(self.pod) or 0
        new = {
            **clone(before),
            **(self.verdict if self.finished else {}),
            "phase": phase,
            "hostIP": "127.0.0.1",
            "podIP": address(number),
            "podIPs": [{"ip": address(number)}],
            "startTime": stamp(self.began),
            "containerStatuses": [container.status() for container in self.mains],
        }
        if self.inits:
            new["initContainerStatuses"] = [container.status() for container in self.inits]
        ready = phase == "Running" and all(container.is_running for container in self.mains)
        ended = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase)
        why = "" if ready else ended or "ContainersNotReady"
        begun = all(c.is_running or c.exit_code == 0 for c in self.inits)
        facts = {
            "PodReadyToStartContainers": (self.volumes is not None and not ended, ""),
            "Initialized": (begun, "" if begun else "ContainersNotInitialized"),
            "Ready": (ready, why),
            "ContainersReady": (ready, why),
        }
        for kind, (true, reason) in facts.items():
            self._set(new, kind, true, reason)
        return new

    def _set(self, status: Json, kind: str, true: bool, reason: str) -> None:
        conditions = status.setdefault("conditions", [])
        old = next((c for c in conditions if c["type"] == kind), None)
        new = {"type": kind, "status": str(true), "lastProbeTime": None}
        if reason:
            new["reason"] = reason
        if old is not None and old["status"] == new["status"]:
            if old.get("reason") == new.get("reason"):
                return
            new["lastTransitionTime"] = old["lastTransitionTime"]
        else:
            new["lastTransitionTime"] = stamp(self.clock.now())
        status["conditions"] = [*(c for c in conditions if c["type"] != kind), new]

    def clean(self) -> None:
        """Remove the pod's folders, logs included."""
        shutil.rmtree(self.root, ignore_errors=True)


def _last_words(container: Container) -> str:
    """The container's termination message."""
    spec, process = container.spec, container.process
    assert process is not None
    text = ""
    if container.message_file and container.message_file.exists():
        text = container.message_file.read_bytes()[:4096].decode(errors="replace")
    on_error = spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
    if not text and on_error and process.exit_code:
        text = process.log.tail_text(80, 2048)
    return text
