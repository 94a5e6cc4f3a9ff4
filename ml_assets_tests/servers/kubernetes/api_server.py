"""The whole cluster: store, controllers, kubelet and HTTP, started and stopped together."""

import base64
import shutil
import sys
import tempfile
from pathlib import Path

import yaml

from ml_assets_tests.servers.kubernetes import (
    admission,
    certificates,
    defaults,
    deletion,
    job_rules,
    scheduler,
    verbs,
)
from ml_assets_tests.servers.kubernetes.access import Access
from ml_assets_tests.servers.kubernetes.clock import Clock
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.events import EventRecorder
from ml_assets_tests.servers.kubernetes.garbage import GarbageCollector
from ml_assets_tests.servers.kubernetes.http import Front
from ml_assets_tests.servers.kubernetes.jobs import JobController
from ml_assets_tests.servers.kubernetes.kubelet import Kubelet
from ml_assets_tests.servers.kubernetes.kueue import Kueue
from ml_assets_tests.servers.kubernetes.loop import Loop
from ml_assets_tests.servers.kubernetes.namespaces import NamespaceController
from ml_assets_tests.servers.kubernetes.quotas import QuotaController
from ml_assets_tests.servers.kubernetes.resources import JOBS, NODES, PODS, of_kind
from ml_assets_tests.servers.kubernetes.scheduler import Scheduler
from ml_assets_tests.servers.kubernetes.starting import Starter
from ml_assets_tests.servers.kubernetes.store import Store, clone, key_of

_REPOSITORY = Path(__file__).parents[3]


class ApiServer:
    """See the package's first lines for what is public."""

    def __init__(
        self, *, speed: float = 1.0, image_environment: dict[str, str] | None = None
    ) -> None:
        self.clock = Clock(speed)
        self.store = Store(self.clock)
        self.access = Access(self.clock)
        self.namespace = "ml-assets"
        self.root = Path(tempfile.mkdtemp(prefix="k8s-"))
        self.loop = Loop(self.clock)
        events = EventRecorder(self.store)
        carried = {"PYTHONPATH": str(_REPOSITORY), **(image_environment or {})}
        starter = Starter(self.store, self.loop, events, self.root, carried)
        self.kubelet = Kubelet(self.store, self.loop, events, starter)
        self.images = starter.images
        self.kueue = Kueue(self.store, self.loop, events)
        for controller in (
            JobController(self.store, self.loop, events),
            Scheduler(self.store, self.loop, events),
            self.kubelet,
            GarbageCollector(self.store, self.loop),
            NamespaceController(self.store, self.loop),
            QuotaController(self.store, self.loop),
            self.kueue,
        ):
            self.store.subscribe(controller.notice)
        self._front = Front(self.store, self.kubelet, self.access)
        self.calls = self._front.calls
        self.faults = self._front.faults
        self._furnish()

    def _furnish(self) -> None:
        """The namespaces of a new cluster, ours, one roomy node, and `python` for shells."""
        for name in ("default", "kube-system", "kube-public", self.namespace):
            self.create_namespace(name)
        self.add_node("node-1")
        program = self.root / "bin" / "python"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        program.chmod(0o755)

    # --- life -------------------------------------------------------------------------------------

    def __enter__(self) -> "ApiServer":
        self.loop.start()
        self._front.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all: watches, connections, controllers, processes, threads, folders."""
        self.store.close()
        self.loop.stop()
        self.kubelet.stop()
        self._front.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def failures(self) -> list[BaseException]:
        """What went wrong in the server itself; a test that sees any has found a bug here."""
        return [*self.loop.failures, *self._front.failures]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._front.port}"

    def write_kubeconfig(
        self, path: Path, *, token: str | None = None, namespace: str | None = None
    ) -> Path:
        """A kubeconfig for this server; without a token, an administrator's that never expires."""
        authority = base64.b64encode(certificates.made().authority).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "tests",
                    "cluster": {"server": self.url, "certificate-authority-data": authority},
                }
            ],
            "users": [{"name": "tester", "user": {"token": token or self.access.token()}}],
            "contexts": [
                {
                    "name": "tests",
                    "context": {
                        "cluster": "tests",
                        "user": "tester",
                        "namespace": namespace or self.namespace,
                    },
                }
            ],
            "current-context": "tests",
        }
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        return path

    # --- furniture --------------------------------------------------------------------------------

    def apply(self, manifest: Json) -> Json:
        """Create an object from inside, past HTTP and RBAC; it passes admission all the same."""
        resource = of_kind(manifest["apiVersion"], manifest["kind"])
        assert resource is not None, f"{manifest['apiVersion']} {manifest['kind']} is not served"
        obj = clone(manifest)
        if resource.namespaced:
            obj["metadata"].setdefault("namespace", self.namespace)
        return clone(admission.create(self.store, resource, obj))

    def create_namespace(self, name: str) -> None:
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def add_node(
        self,
        name: str,
        *,
        cpu: str = "64",
        memory: str = "256Gi",
        gpus: int = 8,
        labels: dict[str, str] | None = None,
        taints: list[Json] | None = None,
    ) -> None:
        made = scheduler.node(name, cpu, memory, gpus, labels or {}, taints or [])
        admission.create(self.store, NODES, made)

    def remove_node(self, name: str) -> None:
        """The node no longer takes pods; those on it run on."""
        self.store.remove(NODES, ("", name))

    def cordon(self, name: str, unschedulable: bool = True) -> None:
        def edit(node: Json) -> None:
            node["spec"]["unschedulable"] = unschedulable

        self.store.change(NODES, "", name, edit)

    # --- what happens to pods ---------------------------------------------------------------------

    def pods(self, namespace: str | None = None) -> list[Json]:
        return [clone(pod) for pod in self.store.all(PODS, namespace or self.namespace)]

    def jobs(self) -> list[Json]:
        return [clone(job) for job in self.store.all(JOBS, self.namespace)]

    def preempt(self, name: str) -> None:
        """A pod of a higher priority takes its place."""
        message = "default-scheduler: preempting to accommodate a higher priority pod"
        self._disrupt(name, "PreemptionByScheduler", message)

    def drain(self, name: str) -> None:
        """Its node got a NoExecute taint (a spot node's notice)."""
        message = "Taint manager: deleting due to NoExecute taint"
        self._disrupt(name, "DeletionByTaintManager", message)

    def _disrupt(self, name: str, reason: str, message: str) -> None:
        pod = self._pod(name)
        verbs.disrupt(self.store, pod, reason, message)
        deletion.delete(self.store, PODS, key_of(pod), {})

    def evict_for_pressure(self, name: str, resource: str = "memory") -> None:
        """The kubelet evicts: phase Failed, reason Evicted, no grace."""
        pod = self._pod(name)
        message = f"The node was low on resource: {resource}. "
        verbs.disrupt(self.store, pod, "TerminationByKubelet", message)
        self.kubelet.evict(pod["metadata"]["uid"], message)

    def run_out_of_memory(self, name: str, container: str | None = None) -> None:
        """The kernel kills a container at its memory limit: OOMKilled, 137."""
        run = self.kubelet.run_of(self._pod(name)["metadata"]["uid"])
        assert run is not None, f"pod {name} does not run"
        target = run.container(container) if container else run.mains[0]
        assert target.process is not None, f"container {target.name} of {name} does not run"
        target.process.run_out_of_memory()

    def cut_off(self, name: str) -> list[int]:
        """The pod's node is cut off: for the API the pod is Failed and goes, its processes run on.

        Returns their ids; `end_cut_off` (or the server's end) ends them.
        """
        pod = self._pod(name)
        found = self.kubelet.abandon(pod["metadata"]["uid"])
        verbs.disrupt(self.store, pod, "DeletionByPodGC", "PodGC: node no longer exists")

        def fail(new: Json) -> None:
            new["status"]["phase"] = "Failed"

        self.store.change(PODS, *key_of(pod), fail)
        deletion.delete(self.store, PODS, key_of(pod), {"gracePeriodSeconds": 0})
        return found

    def end_cut_off(self) -> None:
        self.kubelet.end_abandoned()

    def double(self, name: str) -> str:
        """A second live pod of the same Job and index; returns its name."""
        pod = self._pod(name)
        uid = next(owner["uid"] for owner in pod["metadata"]["ownerReferences"])
        found = self.store.of_uid(uid)
        assert found is not None
        second = defaults.pod_of_job(found[1], job_rules.index_of(pod))
        second["metadata"]["annotations"][job_rules.TWO_OF_ONE_INDEX] = "true"
        return admission.create(self.store, PODS, second)["metadata"]["name"]

    def kueue_preempt(self, job: str) -> None:
        """Kueue takes a Job's quota back: it is suspended."""
        self.kueue.preempt((self.namespace, job))

    def processes(self, name: str) -> list[int]:
        """The process ids of a pod's containers that run."""
        run = self.kubelet.run_of(self._pod(name)["metadata"]["uid"])
        found = run.running if run else []
        return [container.process.pid for container in found if container.process]

    def _pod(self, name: str) -> Json:
        return self.store.get(PODS, self.namespace, name)
