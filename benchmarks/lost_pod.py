"""From a lost pod to the next step, on a real cluster: python benchmarks/lost_pod.py [TURNS]

As cluster_recovery.py does it on the tests' server: two pods train by FSDP, and one is deleted as
`kubectl delete pod` does it. Here nodes, network, image and store are those that a training of
yours has: the settings of docs/cluster.md name them, and the clocks of the nodes are taken to agree
with this one. Wall time, the medians of five turns. Its objects stay in the store until
`ml-assets ops gc`. One figure a line: NAME VALUE AIM holds|short.
"""

import secrets
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster_recovery import DELETED, MODEL, SPEC, Loss
from figures import tell
from generated import training_set
from kubernetes.client import CoreV1Api
from kubernetes.config import new_client_from_config

from ml_assets.errors import TrainingInterrupted
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.launcher import KubernetesLauncher
from ml_assets.launch.kubernetes.names import job_name, selector_of
from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.session_name import train_session
from ml_assets.settings import read_cluster
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.store.embedded.trust import given_keys
from ml_assets.store.s3.objects import S3Objects

NEEDS = (
    "package kubernetes",
    "setting KUBECONFIG",
    "setting ML_ASSETS_OBJECTS",
    "setting ML_ASSETS_TRAINING_IMAGE",
)
EACH_IS = "the median of five turns"
TWO_NODES = ClusterSpec(nodes=2, cpu="1", memory="2Gi")
AIM_SECONDS = 10.0


def main() -> None:
    """Print each figure with its aim."""
    turns = int((sys.argv[1:] or ["5"])[0])
    told = [one_loss() for _ in range(turns)]
    recovered = statistics.median(one.recovered for one in told)
    cold = statistics.median(one.moments["first"] - one.moments["asked"] for one in told)
    tell(
        "lost_pod_to_next_step_seconds",
        recovered,
        AIM_SECONDS,
        why="The cluster finds a node and starts a container, and the new ranks import torch.",
    )
    tell("lost_pod_to_cold_start", recovered / cold)


@dataclass(kw_only=True)
class Lost(Loss):
    """A loss on the cluster that KUBECONFIG names."""

    namespace: str
    job: TrainJob

    def lose(self) -> None:
        """Delete the pod, with the grace that its own manifest gives it."""
        first = job_name(train_session(self.job), 1)
        pods = KubernetesApi(self.namespace).pods(selector_of())
        (name,) = [pod.name for pod in pods if pod.job == first and pod.index == DELETED]
        CoreV1Api(new_client_from_config()).delete_namespaced_pod(name, self.namespace)


def one_loss() -> Lost:
    """Train, lose a pod, and go on until the first step after it.

    Raises:
        RuntimeError: the training ended before that step came.
    """
    settings = read_cluster()
    with tempfile.TemporaryDirectory() as folder:
        objects = S3Objects(Path(folder), settings.objects)
        data = training_set(9600, Path(folder) / "shards" / "benchmark")
        # a seed of its own: what was trained before is not trained again
        spec = SPEC.model_copy(update={"seed": secrets.randbelow(2**31)})
        job = TrainJob("benchmark", MODEL, spec, data, cluster=TWO_NODES)
        lost = Lost(namespace=settings.namespace, job=job)
        lost.moments["asked"] = time.time()
        with suppress(TrainingInterrupted):  # that is how it ends: the rest is not waited for
            launcher = KubernetesLauncher(objects, settings, given_keys)
            launcher.train(job, lost.take, lambda: lost.over)
    if "stepped" not in lost.moments:
        raise RuntimeError(f"no step came after the loss; what was seen: {list(lost.moments)}")
    return lost


if __name__ == "__main__":
    main()
