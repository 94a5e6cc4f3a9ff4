"""Ten weeks of the real flights, to be trained by two processes with FSDP: here, or in two pods.

The data stages are made once; each case goes on from a copy of them, on one object store and a
cluster of its own.
"""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml

import ml_assets.pipelines
from ml_assets.extras.demo.outside_world import lay_out
from ml_assets.extras.demo.sandbox import WEEKS, shorten
from ml_assets.launch.events import session_events
from ml_assets.launch.kubernetes.names import (
    ATTEMPT_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    VERB_LABEL,
    selector_of,
)
from ml_assets.records.run_record import RunRecord
from ml_assets.spec.training_program import ModelManifest
from ml_assets.spec.training_program.events import Warning
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets.store.snapshots import MAIN
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.kubernetes.resources import JOBS, PODS, SERVICES
from ml_assets_tests.servers.s3 import BUCKET, S3Server
from ml_assets_tests.worlds.world import World

NAME = "flight_delays_pods"
PREFIX = "state"
KEY = base64.b64encode(bytes(range(32))).decode()
"""All homes sign with it: what one has examined counts for the others."""
LENIENT = {
    "quality_floor": {"at_least": 0.6},
    "beats_carrier_hour": {"margin": 0.0},
    "gap": {"at_most": 0.5},
    "calibration": {"at_most": 0.3},
    "robustness": {"at_most": 0.5},
}
"""Two weeks to be judged by are few; what is examined here is not the model."""
CLUSTER: dict[str, Any] = {
    "nodes": 2,
    "cpu": "1",
    "memory": "2Gi",
    "shared_memory": "256Mi",
    "scratch": "1Gi",
}


def plant(world: World) -> None:
    """The pipeline of the demo, cut short, and the outside world that it reads."""
    original = Path(ml_assets.pipelines.__path__[0]) / "flight_delays"
    folder = world.pipelines / NAME
    shutil.copytree(original, folder, ignore=shutil.ignore_patterns("__pycache__"))
    spec = yaml.safe_load((folder / "defs.yaml").read_text())
    attributes = spec["attributes"]
    shorten(attributes)
    attributes["name"] = NAME
    attributes["training"] |= {"epochs": 2, "checkpoint_every": 5}
    attributes["gates"] = [
        gate | LENIENT.get(gate.get("name") or gate["kind"], {}) for gate in attributes["gates"]
    ]
    attributes["cluster"] = CLUSTER
    (folder / "defs.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    lay_out(world.sources, arrived=WEEKS)


def on(store: S3Server, root: Path) -> World:
    """A world whose objects lie on S3."""
    shared = {
        "ML_ASSETS_OBJECTS": f"s3://{BUCKET}/{PREFIX}",
        "AWS_ENDPOINT_URL": store.endpoint,
        "ML_ASSETS_SIGNING_KEY": KEY,
    }
    return World(root, shared)


@dataclass(frozen=True)
class Run:
    """A command in a process of its own."""

    process: subprocess.Popen[bytes]
    output: IO[bytes]

    def said(self) -> str:
        """All that it said; the offset stays, for the process writes where it is."""
        file = self.output.fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode()

    def over(self) -> bool:
        return self.process.poll() is not None

    def ends(self, code: int = 0) -> str:
        """Hold it to an exit code; all it said."""
        assert self.process.wait() == code, self.said()[-6000:]
        return self.said()


def begin(world: World, *arguments: str) -> Run:
    """Begin a command, without a limit of time: the machine may be loaded."""
    output = tempfile.TemporaryFile()  # noqa: SIM115 - the run has it
    process = subprocess.Popen(
        [sys.executable, "-m", "ml_assets.cli.main", *arguments],
        env=world.environment,
        cwd=world.root,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )
    return Run(process, output)


@dataclass(frozen=True)
class Pods:
    """One home, one cluster, and what people and faults do to them."""

    world: World
    store: S3Server
    server: ApiServer

    def train(self) -> Run:
        """What is due, with a training that nothing was made of before."""
        return begin(self.world, "run", NAME, "--fresh")

    def ask(self, **changes: Any) -> None:
        """Change what the spec says of the cluster, which is no part of what is trained."""
        file = self.world.pipelines / NAME / "defs.yaml"
        spec = yaml.safe_load(file.read_text())
        spec["attributes"]["cluster"] = CLUSTER | changes
        file.write_text(yaml.safe_dump(spec, sort_keys=False))

    # --- what happens -----------------------------------------------------------------------------

    def until_saved(self, run: Run, attempt: int = 1) -> None:
        """Until an attempt has left a whole checkpoint, in the midst of its steps."""
        end = f".a{attempt}/manifest.json?"

        def saved() -> bool:
            assert not run.over(), run.said()[-6000:]
            return any(m == "PUT" and end in path for m, path in [*self.store.faults.requests])

        while not saved():
            time.sleep(0.05)

    @property
    def core(self) -> Any:
        """The official client, as people have it."""
        from kubernetes import client, config

        kubeconfig = self.world.environment["KUBECONFIG"]
        return client.CoreV1Api(config.new_client_from_config(config_file=kubeconfig))

    def pod(self, index: int) -> Any:
        """The pod of this index of the newest attempt to train."""
        listed = self.core.list_namespaced_pod(
            self.server.namespace, label_selector=f"{selector_of()},{VERB_LABEL}=train"
        )
        mine = [
            pod
            for pod in listed.items
            if pod.metadata.labels["batch.kubernetes.io/job-completion-index"] == str(index)
        ]
        return max(mine, key=lambda pod: int(pod.metadata.labels[ATTEMPT_LABEL]))

    def delete(self, index: int) -> str:
        """As ``kubectl delete pod``: with its grace. Its name."""
        name = self.pod(index).metadata.name
        self.core.delete_namespaced_pod(name, self.server.namespace)
        return name

    def evict(self, index: int) -> str:
        """As ``kubectl drain``: by the eviction API. Its name."""
        name = self.pod(index).metadata.name
        body = {"metadata": {"name": name, "namespace": self.server.namespace}}
        self.core.create_namespaced_pod_eviction(name, self.server.namespace, body)
        return name

    # --- what came of it --------------------------------------------------------------------------

    def trainings(self) -> int:
        """Jobs that were made to train: each was deleted in the end."""
        ended = {call.name for call in self.server.calls.of("delete", "jobs")}
        return sum("-train-" in name for name in ended)

    def left(self) -> list[str]:
        """What carries our label on the cluster."""
        return [
            f"{resource.kind} {item['metadata']['name']}"
            for resource in (JOBS, PODS, SERVICES)
            for item in self.server.store.all(resource)
            if (item["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) == MANAGED_BY
        ]

    def released(self) -> str:
        """SHA-256 of the weights that the newest decision released."""
        release = self.world.status(NAME)["release"]
        assert (release["decision"], release["stage"]) == ("passed", "production"), release
        return self.weights(release["version"])

    def weights(self, model: str) -> str:
        """SHA-256 of a model's weights, of the bytes that lie there."""
        manifest = ModelManifest.model_validate_json(self._object(f"models/{model}/model.json"))
        data = self._object(f"models/{model}/{manifest.weights.path}")
        assert hashlib.sha256(data).hexdigest() == manifest.weights.sha256
        return manifest.weights.sha256

    def _object(self, name: str) -> bytes:
        key = f"{PREFIX}/{name}"
        return self.store.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def record(self) -> RunRecord:
        """The run record of the model."""
        store = open_pipeline(NAME, self.world.settings).store
        file = Address(NAME, "trained_model").file("run.json")
        return RunRecord.model_validate_json(store.read_bytes(store.resolve(MAIN), file))

    def warned(self) -> str:
        """What the launcher said of the training on the way."""
        sessions = self.world.settings.cache / "sessions"
        told = session_events(sessions / self.record().session)
        return "\n".join(event.message for event in told if isinstance(event, Warning))

    def page(self) -> dict[str, Any]:
        """What the page of the model shows in the UI."""
        return self.world.page(NAME, "trained_model")


@contextmanager
def pods(base: World, store: S3Server, root: Path) -> Iterator[Pods]:
    """A copy of a home, with a cluster of its own."""
    shutil.copytree(base.root, root, dirs_exist_ok=True, symlinks=True)
    with store.faults.lock:
        store.faults.requests.clear()
    with ApiServer() as server:
        keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        data = {key: base64.b64encode(os.environ[key].encode()).decode() for key in keys}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ml-assets-training"}}
        server.apply({**secret, "data": data})
        launches = {
            **base.extra,
            "ML_ASSETS_LAUNCHER": "kubernetes",
            "ML_ASSETS_TRAINING_IMAGE": "registry.example/training@sha256:" + "5" * 64,
            "KUBECONFIG": str(server.write_kubeconfig(root / "kubeconfig")),
        }
        yield Pods(World(root, launches), store, server)
        assert server.failures == []


def table(metadata: Any) -> list[dict[str, Any]]:
    """The rows of a table on an asset page."""
    return [dict(record.data) for record in metadata.records]
