"""From a deleted pod to the next training step: python benchmarks/cluster_recovery.py [TURNS]

Two pods train by FSDP on the tests' API server, their objects on an S3 server of this machine; one
pod is deleted as `kubectl delete pod` does it. Nodes and images are there at once, so that what is
measured is ours: the notice, the save, the next Job, its processes, the checkpoint, the step. Wall
time, the medians of five turns, and the processor time of the new pods. One figure a line: NAME
VALUE AIM holds|short.
"""

import os
import statistics
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from figures import tell
from generated import training_set

from ml_assets.errors import TrainingInterrupted
from ml_assets.launch.kubernetes.names import job_name
from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.local.supervisor import descendants
from ml_assets.launch.session_name import train_session
from ml_assets.spec.training import Mlp, TrainingSpec
from ml_assets.spec.training_program.events import Checkpoint, Event, Metrics, Progress
from ml_assets_tests.launch.kubernetes.stage import IMAGE, TWO_NODES, Stage
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.kubernetes.cluster import TestCluster
from ml_assets_tests.servers.kubernetes.resources import JOBS
from ml_assets_tests.servers.s3 import s3_server

NEEDS = ("package kubernetes",)
EACH_IS = "the median of five turns"

MODEL = Mlp(family="mlp", width=128, depth=2)
SPEC = TrainingSpec(
    epochs=4000, batch_size=960, microbatches=24, evaluate_every=10, patience=4000, processes=2
)
NOTE = (
    "Nodes and images are there at once: a real cluster adds what it takes to find a node and to"
    " start a container."
)
DELETED_AT = 20
"""Step; hours of steps follow, which nobody waits for."""
DELETED = 1
"""Index of the pod."""
AIM_SECONDS = 6.0
PARTS = ("saved", "ended", "made_again", "pods_begun", "ranks_begun", "resumed", "stepped")
"""Moments, in the order in which they come."""


def main() -> None:
    """Print each figure with its aim."""
    turns = int((sys.argv[1:] or ["5"])[0])
    told = [one_loss() for _ in range(turns)]
    before = "deleted"
    for part in PARTS:
        took = statistics.median(one.moments[part] - one.moments[before] for one in told)
        print(f"{before}_to_{part}_seconds {took:.2f}", flush=True)
        before = part
    for kind in ("pod", "torchrun", "rank"):
        spent = statistics.median(one.spent[kind] for one in told)
        print(f"processor_seconds_of_each_{kind} {spent:.2f}", flush=True)
    recovered = statistics.median(one.recovered for one in told)
    cold = statistics.median(one.moments["first"] - one.moments["asked"] for one in told)
    tell(
        "recovery_seconds",
        recovered,
        AIM_SECONDS,
        why="Two thirds are the new ranks: they import torch and form their process group.",
    )
    tell("recovery_to_cold_start", recovered / cold)


@dataclass
class Loss:
    """When the things of one loss happened, in seconds of the clocks of those who tell it."""

    moments: dict[str, float] = field(default_factory=dict)
    over: bool = False

    @property
    def recovered(self) -> float:
        return self.moments["stepped"] - self.moments["deleted"]

    def take(self, event: Event) -> None:
        """Delete a pod at its step; note when what follows happened, as it is told."""
        at = event.time.timestamp()
        if event.attempt == 1:
            if isinstance(event, Checkpoint):
                self.moments["saved"] = at  # the last one is that of the notice
            if isinstance(event, Metrics):
                self.moments.setdefault("first", at)
            if isinstance(event, Metrics) and event.step >= DELETED_AT and not self._deleted:
                self.moments["deleted"] = time.time()
                self.lose()
        elif isinstance(event, Progress) and event.message.startswith("resumed"):
            self.moments["resumed"] = at
        elif isinstance(event, Metrics) and not self.over:
            self.moments["stepped"] = at
            self.look()
            self.over = True

    def lose(self) -> None:
        """Delete the pod."""
        raise NotImplementedError  # each kind of cluster has its own way

    def look(self) -> None:
        """Note what else there is to see when the next step has come."""

    @property
    def _deleted(self) -> bool:
        return "deleted" in self.moments


@dataclass(kw_only=True)
class Story(Loss):
    """A loss on the tests' server, of which every part is seen."""

    stage: Stage
    job: TrainJob
    spent: dict[str, float] = field(default_factory=dict)

    def lose(self) -> None:
        """Delete the pod, and watch what the Jobs do."""
        threading.Thread(target=self._watch_jobs, daemon=True).start()
        self.stage.core.delete_namespaced_pod(self.stage.pod(DELETED), self.stage.cluster.namespace)

    def _watch_jobs(self) -> None:
        """When the last pod of the old Job had ended, and when the new Job was there."""
        server, second = self.stage.cluster.server, job_name(train_session(self.job), 2)
        while "made_again" not in self.moments:
            if all(_has_ended(pod) for pod in server.pods()):
                self.moments.setdefault("ended", time.time())
            if any(job["metadata"]["name"] == second for job in server.store.all(JOBS)):
                self.moments["made_again"] = time.time()
                self.moments.setdefault("ended", self.moments["made_again"])
            time.sleep(0.01)

    def look(self) -> None:
        """When the newest pods began, and what each kind of process has used since."""
        found: dict[str, list[tuple[float, float]]] = {"pod": [], "torchrun": [], "rank": []}
        for pid in descendants(os.getpid()):
            with suppress(OSError):  # it ended while we looked
                kind, seen = _kind(Path(f"/proc/{pid}")), _began_and_spent(pid)
                if kind and seen[0] > self.moments["made_again"] - 1:
                    found[kind].append(seen)
        self.moments["pods_begun"] = max(began for began, _ in found["pod"])
        self.moments["ranks_begun"] = max(began for began, _ in found["rank"])
        for kind, seen in found.items():
            self.spent[kind] = statistics.mean(spent for _, spent in seen)


def one_loss() -> Story:
    """Train, lose a pod, and go on until the first step after it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        s3_server(patch) as store,
        ApiServer() as server,
    ):
        kubeconfig = server.write_kubeconfig(Path(folder) / "kubeconfig")
        cluster = TestCluster(kubeconfig, server.namespace, IMAGE, server)
        stage = Stage(Path(folder) / "home", cluster, store).furnish()
        data = training_set(9600, stage.home / "objects" / "shards" / "benchmark")
        job = TrainJob("benchmark", MODEL, SPEC, data, cluster=TWO_NODES)
        story = Story(stage=stage, job=job)
        story.moments["asked"] = time.time()
        with suppress(TrainingInterrupted):  # that is how it ends: the rest is not waited for
            stage.launcher().train(job, story.take, lambda: story.over)
        return story


def _has_ended(pod: dict[str, object]) -> bool:
    status = pod["status"]
    assert isinstance(status, dict)
    return status.get("phase") in ("Succeeded", "Failed")


def _kind(process: Path) -> str | None:
    if (process / "comm").read_text().startswith("rank"):
        return "rank"
    command = (process / "cmdline").read_bytes().split(b"\0")
    if b"ml_assets.training.staging" in command:
        return "pod"
    return "torchrun" if b"ml_assets.training.elastic" in command else None


def _began_and_spent(pid: int) -> tuple[float, float]:
    """When a process began, and its processor seconds (proc(5), ``/proc/pid/stat``)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    up = float(Path("/proc/uptime").read_text().split()[0])
    began = time.time() - up + int(fields[19]) / tick
    return began, (int(fields[11]) + int(fields[12])) / tick


if __name__ == "__main__":
    main()
