"""Starting one container: its image, its environment, its process, or what it waits for."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from ml_assets_tests.servers.kubernetes import logs, volumes
from ml_assets_tests.servers.kubernetes.clock import stamp
from ml_assets_tests.servers.kubernetes.environment import (
    ConfigError,
    Localiser,
    Ports,
    expand,
    variables_of,
)
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.events import EventRecorder
from ml_assets_tests.servers.kubernetes.images import Images
from ml_assets_tests.servers.kubernetes.loop import Loop
from ml_assets_tests.servers.kubernetes.pod_run import Container, PodRun
from ml_assets_tests.servers.kubernetes.processes import ContainerProcess
from ml_assets_tests.servers.kubernetes.resources import SECRETS, SERVICES
from ml_assets_tests.servers.kubernetes.store import Store, owners

_SOURCE = "kubelet"


class Starter:
    def __init__(
        self,
        store: Store,
        loop: Loop,
        events: EventRecorder,
        root: Path,
        image_environment: dict[str, str],
    ) -> None:
        self.images = Images()
        self.root = root
        self._store = store
        self._loop = loop
        self._events = events
        self._ports = Ports()
        self._image_environment = image_environment

    def service_of(self, run: PodRun) -> str:
        """The headless Service that makes the pods' names; empty where there is none."""
        name = run.pod["spec"].get("subdomain", "")
        service = self._store.find(SERVICES, run.key[0], name) if name else None
        return name if service and service["spec"].get("clusterIP") == "None" else ""

    def start(self, run: PodRun, container: Container, again: Callable[[], None]) -> bool:
        """Start one container, or note what it waits for."""
        spec = container.spec
        if not self._has_image(run, container, again):
            return False
        try:
            argv, variables, folder = self._prepare(run, container)
        except ConfigError as error:
            container.wait_for("CreateContainerConfigError", str(error))
            self._events.warning(run.pod, _SOURCE, "Failed", f"Error: {error}", part_of(container))
            return False
        if shutil.which(argv[0], path=variables["PATH"]) is None:
            self._cannot_start(run, container, argv[0])
            again()
            return True
        self._events.normal(
            run.pod, _SOURCE, "Created", f"Created container: {spec['name']}", part_of(container)
        )
        log = logs.Log(run.root / spec["name"] / f"{container.restarts}.log", self._store.clock)
        container.process = ContainerProcess(argv, variables, folder, log, self._store.clock, again)
        container.runs.append(container.process)
        container.ended = None
        container.wait_for("")
        self._events.normal(
            run.pod, _SOURCE, "Started", f"Started container {spec['name']}", part_of(container)
        )
        return True

    def _has_image(self, run: PodRun, container: Container, again: Callable[[], None]) -> bool:
        image, policy = container.spec["image"], container.spec["imagePullPolicy"]
        if container.image_tries and not self._is_due(container):
            return False
        self._look_for_pull_secrets(run)
        field = part_of(container)
        problem = self.images.problem(image, policy)
        if problem is None:
            here = f'Container image "{image}" already present on machine'
            self._events.normal(run.pod, _SOURCE, "Pulled", here, field)
            return True
        reason, message = problem
        if reason != "ErrImagePull":
            container.wait_for(reason, message)
            self._events.warning(run.pod, _SOURCE, "Failed", f"Error: {reason}", field)
            return False
        wait = min(300.0, 10.0 * 2**container.image_tries)
        container.image_tries += 1
        container.image_due = self._store.clock.seconds() + wait
        key = ("back off", run.uid, container.name)
        self._loop.after(1, key, lambda: self._back_off(run, container, again))
        self._loop.after(wait + 0.001, ("pull", run.uid, container.name), again)
        if container.waiting[0] != "ImagePullBackOff":
            container.wait_for(reason, message)
        self._events.normal(run.pod, _SOURCE, "Pulling", f'Pulling image "{image}"', field)
        told = f'Failed to pull image "{image}": {message}'
        self._events.warning(run.pod, _SOURCE, "Failed", told, field)
        self._events.warning(run.pod, _SOURCE, "Failed", "Error: ErrImagePull", field)
        return False

    def _look_for_pull_secrets(self, run: PodRun) -> None:
        wanted = [ref["name"] for ref in run.pod["spec"].get("imagePullSecrets") or []]
        missing = [n for n in wanted if self._store.find(SECRETS, run.key[0], n) is None]
        if missing:
            message = (
                f"Unable to retrieve some image pull secrets ({', '.join(missing)}); attempting"
                " to pull the image may not succeed."
            )
            self._events.warning(run.pod, _SOURCE, "FailedToRetrieveImagePullSecret", message)

    def _is_due(self, container: Container) -> bool:
        return self._store.clock.seconds() >= container.image_due

    def _back_off(self, run: PodRun, container: Container, again: Callable[[], None]) -> None:
        if container.process or run.ending:
            return
        image = container.spec["image"]
        told, (reason, why) = f'Back-off pulling image "{image}"', container.waiting
        if reason == "ErrImagePull":  # which stays in sight since 1.32
            container.wait_for("ImagePullBackOff", f"{told}: {reason}: {why}")
        field = part_of(container)
        self._events.normal(run.pod, _SOURCE, "BackOff", told, field)
        self._events.warning(run.pod, _SOURCE, "Failed", "Error: ImagePullBackOff", field)
        again()

    def _cannot_start(self, run: PodRun, container: Container, program: str) -> None:
        why = f'exec: "{program}": executable file not found in $PATH'
        message = f"failed to create containerd task: failed to create shim task: {why}: unknown"
        now = stamp(self._store.clock.now())
        container.ended = {
            "exitCode": 128,
            "reason": "StartError",
            "message": message,
            "startedAt": "1970-01-01T00:00:00Z",
            "finishedAt": now,
            "containerID": "",
        }
        self._events.warning(run.pod, _SOURCE, "Failed", f"Error: {message}", part_of(container))

    def _prepare(self, run: PodRun, container: Container) -> tuple[list[str], dict[str, str], Path]:
        """Arguments, environment and working folder of a container's process."""
        assert run.volumes is not None
        spec = container.spec
        folder = run.root / spec["name"] / "root"
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        mounts = volumes.mounts_of(spec, run.volumes)
        message = run.root / spec["name"] / f"message-{container.restarts}"
        mounts[spec["terminationMessagePath"]] = container.message_file = message
        localise = self._localiser(run, mounts)
        variables = {
            **self._base(folder, run.pod),
            **self._packages(spec["image"]),
            **variables_of(self._store, run.pod, spec, localise),
        }
        argv = [
            localise(expand(word, variables))
            for word in [*(spec.get("command") or []), *(spec.get("args") or [])]
        ]
        if not spec.get("command"):
            argv = ["python", *argv]
        if argv[0] in ("python", "python3"):
            argv[0] = sys.executable
        return argv, variables, folder

    def _localiser(self, run: PodRun, mounts: dict[str, Path]) -> Localiser:
        owner = next((o for o in owners(run.pod) if o.get("controller")), None)
        job, name = (owner["uid"], owner["name"]) if owner else (run.uid, "")
        service = self.service_of(run) if name else ""
        return Localiser(
            mounts, service, name, run.key[0], lambda port: self._ports.local(job, port)
        )

    def _packages(self, image: str) -> dict[str, str]:
        """Of an image that a test gave packages of its own."""
        own = self.images.packages.get(image)
        return {} if own is None else {"PYTHONPATH": str(own)}

    def _base(self, folder: Path, pod: Json) -> dict[str, str]:
        """What an image brings along: Python and our package; nothing of the test's own."""
        path = f"{self.root / 'bin'}:{Path(sys.executable).parent}:{os.defpath}"
        return {
            "PATH": f"{path}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "TMPDIR": str(folder / "tmp"),
            "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
            "LANG": "C.UTF-8",
            **self._image_environment,
        }


def part_of(container: Container) -> str:
    """The field path that an event about a container names."""
    kind = "initContainers" if container.is_init else "containers"
    return f"spec.{kind}{{{container.name}}}"
