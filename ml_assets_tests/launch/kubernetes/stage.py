"""A launcher on the tests' cluster, its objects on an S3 server, and what it told."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ml_assets.launch.events import session_events
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.launcher import KubernetesLauncher
from ml_assets.launch.kubernetes.names import selector_of
from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.session_name import train_session
from ml_assets.settings import Cluster
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.store.embedded.trust import given_keys
from ml_assets.store.s3.objects import S3Objects
from ml_assets_tests.launch.real import train_job, write_set
from ml_assets_tests.servers.kubernetes.cluster import TestCluster
from ml_assets_tests.servers.s3 import BUCKET, S3Server
from ml_assets_tests.store.s3_rights import PODS, rights_of_pods, secret_of_pods

URI = f"s3://{BUCKET}/state"
IMAGE = "registry.example/training@sha256:" + "5" * 64
ONE_NODE = ClusterSpec(cpu="100m", memory="2Gi")
TWO_NODES = ClusterSpec(nodes=2, cpu="100m", memory="2Gi")
SECRET = "ml-assets-training"


@dataclass
class Stage:
    """One home of an orchestrator; another one shares the cluster and the store."""

    home: Path
    cluster: TestCluster
    store: S3Server
    events: list[Any] = field(default_factory=list)
    image: str = IMAGE

    def furnish(self) -> "Stage":
        """The pods' Secret: keys that may do what docs/cluster.md says, and no more."""
        self.store.rights[PODS] = rights_of_pods(URI.removeprefix("s3://"))
        data = secret_of_pods(os.environ["AWS_SECRET_ACCESS_KEY"])
        secret = {"metadata": {"name": SECRET}, "data": data}
        if self.cluster.own is None:
            self.core.create_namespaced_secret(self.cluster.namespace, secret)
        else:
            self.cluster.own.apply({"apiVersion": "v1", "kind": "Secret", **secret})
        return self

    def other_home(self, folder: Path) -> "Stage":
        """Another orchestrator: it shares the cluster and the store, and no disk."""
        return Stage(folder, self.cluster, self.store)

    @property
    def settings(self) -> Cluster:
        return Cluster(
            objects=URI,
            image=self.image,
            namespace=self.cluster.namespace,
            secret=SECRET,
            s3_endpoint=self.store.endpoint,
            s3_region="us-east-1",
        )

    @property
    def objects(self) -> S3Objects:
        return S3Objects(self.home / "objects", URI)

    def api(self, **more: Any) -> KubernetesApi:
        where = {"KUBECONFIG": str(self.cluster.kubeconfig)}
        return KubernetesApi(self.cluster.namespace, environment=where, **more)

    @property
    def core(self) -> Any:
        """The official client, for what people do to pods."""
        from kubernetes.client import CoreV1Api

        return CoreV1Api(self.cluster.client())

    def launcher(self, **more: Any) -> KubernetesLauncher:
        """A launcher of this home, whose word counts by the keys of the environment."""
        return KubernetesLauncher(
            self.objects,
            self.settings,
            given_keys,
            api=self.api(),
            **more,
        )

    def launch_elsewhere(self, **changes: Any) -> subprocess.Popen[str]:
        """The same training launched by another process, on one pod, in this home."""
        program = Path(__file__).with_name("launching.py")
        asked = [str(self.home), self.store.endpoint, self.cluster.namespace, json.dumps(changes)]
        return subprocess.Popen(
            [sys.executable, str(program), *asked],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "KUBECONFIG": str(self.cluster.kubeconfig),
                "PYTHONPATH": str(Path(__file__).parents[3]),
            },
        )

    def job(self, *, cluster: ClusterSpec = TWO_NODES, **changes: Any) -> TrainJob:
        job = train_job(write_set(self.home / "objects" / "shards" / "demo"), **changes)
        return TrainJob(job.pipeline, job.model, job.training, job.data, cluster=cluster)

    def folder(self, job: TrainJob) -> Path:
        return self.objects.path("sessions", train_session(job))

    def told(self, job: TrainJob) -> list[Any]:
        return session_events(self.folder(job))

    def saves_of(self, attempt: int) -> int:
        """Whole checkpoints of an attempt, as the store has them."""
        return self.put(f".a{attempt}/manifest.json")

    def put(self, end: str) -> int:
        """How many objects whose names end so were put into the store."""
        asked = list(self.store.faults.requests)
        return sum(method == "PUT" and f"{end}?" in path for method, path in asked)

    def clear(self) -> None:
        self.api().delete(selector_of(), 60)

    def left(self) -> list[str]:
        """What carries our label on the cluster."""
        api = self.api()
        return api._left(selector_of())

    def pod(self, index: int) -> str:
        """The name of the newest attempt's pod of this index."""
        pods = [pod for pod in self.api().pods(selector_of()) if pod.index == index]
        return max(pods, key=lambda pod: int(pod.job.rpartition("-a")[2])).name


def weights(result: Any) -> str:
    """SHA-256 of a result's weights."""
    return hashlib.sha256((Path(result.model.uri) / "weights.safetensors").read_bytes()).hexdigest()
