"""What a cluster is asked by those who follow its Jobs: python benchmarks/cluster_load.py

The manifest of 256 nodes: time and size. Three days of such a Job on a simulated clock, with an
attempt lost every twelve hours, an expired token every hour, a watch cut every hour and the API
away for a minute every six hours: calls an hour, and what the memory of the client grows by. A day
of 200 training runs, each an hour of eight pods that is followed by itself, through the same
weather; what a run asks at its start and its end is counted on the tests' API server. Retries,
watches and states are the real ones; in the simulation only the HTTP below them is not there. One
figure a line: NAME VALUE AIM holds|short.
"""

import gc
import json
import tempfile
import time
import tracemalloc
from copy import deepcopy
from pathlib import Path
from typing import Any

from figures import tell

from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.informer import Cache, JobInformer, Reflector
from ml_assets.launch.kubernetes.manifest import JobOrder, manifests
from ml_assets.settings import Cluster
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.training_program import World
from ml_assets_tests.launch.kubernetes.objects import RUNNING, condition, waiting
from ml_assets_tests.launch.kubernetes.simulated import AWAY, HOUR, RESET, Simulated
from ml_assets_tests.servers.kubernetes import ApiServer

NEEDS = ("package kubernetes",)

NODES = 256
DAYS = 72 * HOUR
ATTEMPT = 12 * HOUR
RUNS_A_DAY, PODS_OF_A_RUN = 200, 8
SESSION = "flight_delays-train-0123456789abcdef0123"
MEBIBYTE = 2**20


def main() -> None:
    """Print each figure with its aim."""
    job = manifest()
    three_days(job)
    at_the_ends = calls_of_one_run()
    tell("calls_of_one_runs_start_and_end", at_the_ends, 40)
    a_day(job, at_the_ends)


def manifest() -> dict[str, Any]:
    """The Job of 256 nodes."""
    order, settings = an_order(), a_cluster()
    began = time.process_time()
    for _ in range(20):
        made = {one["kind"]: json.dumps(one) for one in manifests(order, settings)}
    tell(f"manifest_of_{NODES}_nodes_ms", (time.process_time() - began) / 20 * 1000, 50)
    tell(f"manifest_of_{NODES}_nodes_kib", sum(map(len, made.values())) / 1024, 64)
    return json.loads(made["Job"])


def an_order() -> JobOrder:
    return JobOrder(
        pipeline="flight_delays",
        session=SESSION,
        attempt=1,
        verb="train",
        world=World(nodes=NODES, procs=8, threads=8),
        cluster=ClusterSpec(nodes=NODES, gpus_per_node=8, cpu="96", memory="1000Gi"),
        spot=False,
        request=f"s3://bucket/prefix/sessions/{SESSION}/attempts/1/request.json",
        grace_seconds=60,
    )


def a_cluster() -> Cluster:
    image = f"registry.example.org/ml-assets-training@sha256:{'0' * 64}"
    return Cluster(objects="s3://bucket/prefix", image=image)


# --- three days -----------------------------------------------------------------------------------


def three_days(job: dict[str, Any]) -> None:
    """Calls an hour, and the growth of memory from the second attempt to the last."""
    cache, jobs, pods, reflectors = followed(0)
    tracemalloc.start()
    sizes, cpu = [], time.process_time()
    for number in range(int(DAYS / ATTEMPT)):
        begin = number * ATTEMPT
        jobs.happens, pods.happens = an_attempt(job, number, begin, ATTEMPT, NODES)
        follow(jobs, pods, reflectors, begin + ATTEMPT / 2)
        assert len(cache.now().pods) == NODES
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
        follow(jobs, pods, reflectors, begin + ATTEMPT)
    cpu = time.process_time() - cpu
    tracemalloc.stop()
    calls = (jobs.reached + pods.reached) / (DAYS / HOUR)
    tell(f"calls_an_hour_of_{NODES}_pods", calls, 99)
    tell("memory_growth_of_three_days_mib", (sizes[-1] - sizes[1]) / MEBIBYTE, 1)
    print(f"cpu_seconds_of_three_days {cpu:.1f}")


def a_day(job: dict[str, Any], at_the_ends: int) -> None:
    """Runs that begin one after the other, nine of them at any time; each is followed by itself."""
    tracemalloc.start()
    sizes, calls = [], 0
    for number in range(RUNS_A_DAY):
        begin = number * 24 * HOUR / RUNS_A_DAY
        cache, jobs, pods, reflectors = followed(begin)
        jobs.happens, pods.happens = an_attempt(job, number, begin, HOUR, PODS_OF_A_RUN)
        follow(jobs, pods, reflectors, begin + HOUR / 2)
        assert len(cache.now().pods) == PODS_OF_A_RUN
        follow(jobs, pods, reflectors, begin + HOUR)
        calls += jobs.reached + pods.reached + at_the_ends
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    tell(f"calls_a_job_hour_of_{RUNS_A_DAY}_runs_a_day", calls / RUNS_A_DAY, 99)
    print(f"calls_an_hour_of_{RUNS_A_DAY}_runs_a_day {calls / 24:.0f}")
    growth = (sizes[-1] - sizes[RUNS_A_DAY // 10]) / MEBIBYTE
    tell(f"memory_growth_of_{RUNS_A_DAY}_runs_mib", growth, 1)


def followed(begin: float) -> tuple[Cache, Simulated, Simulated, list[Reflector]]:
    """A cache, what is behind its two reflectors, and these, from a moment on."""
    cache = Cache()
    jobs, pods = Simulated(fault=weather), Simulated(fault=weather)
    jobs.now = pods.now = begin
    reflectors = [
        Reflector(source, kind, "a=b", cache, source.clock, source.pause)
        for source, kind in ((jobs, "jobs"), (pods, "pods"))
    ]
    for reflector in reflectors:
        reflector.begin()
    return cache, jobs, pods, reflectors


def follow(jobs: Simulated, pods: Simulated, reflectors: list[Reflector], until: float) -> None:
    """Let each reflector go on until its clock is there."""
    for source, reflector in zip((jobs, pods), reflectors, strict=True):
        while source.now < until:
            reflector.turn()


def weather(what: str, now: float) -> Exception | None:
    """A watch is cut every hour; the API is away for a minute every six."""
    if now % (6 * HOUR) > 6 * HOUR - 60:
        return RESET if what == "watching" else AWAY
    return RESET if what == "watching" and now % HOUR < 1 else None


def an_attempt(
    job: dict[str, Any], number: int, begin: float, length: float, nodes: int
) -> tuple[list[tuple[float, str, Any]], list[tuple[float, str, Any]]]:
    """What happens to a Job and its pods until it is deleted and the next one comes."""
    end = begin + length - 700
    named = a_job(job, number, nodes)
    of_job = [(begin + 1, "ADDED", named), (end + 60, "DELETED", named)]
    of_pods: list[tuple[float, str, Any]] = []
    for index in range(nodes):
        for at, kind, state, phase in (
            (begin + 2, "ADDED", waiting("ContainerCreating"), "Pending"),
            (begin + 60, "MODIFIED", RUNNING, "Running"),
            (end + 30, "DELETED", RUNNING, "Running"),
        ):
            of_pods.append((at + index / 1000, kind, a_pod(job, number, index, state, phase)))
    return of_job, sorted(of_pods, key=lambda change: change[0])


def a_job(job: dict[str, Any], number: int, nodes: int) -> dict[str, Any]:
    made = deepcopy(job)
    made["metadata"] |= {"name": f"job-{number}", "uid": f"job-{number}", "resourceVersion": "1"}
    return made | {"status": {"active": nodes}}


def a_pod(job: dict[str, Any], number: int, index: int, state: Any, phase: str) -> dict[str, Any]:
    """As large as a real one: with the whole spec of its container."""
    template = job["spec"]["template"]
    labels = template["metadata"]["labels"] | {
        "batch.kubernetes.io/job-name": f"job-{number}",
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    name = f"job-{number}-{index}-x7k2p"
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels},
        "spec": template["spec"] | {"nodeName": f"node-{index}"},
        "status": {
            "phase": phase,
            "conditions": [condition("PodScheduled")],
            "containerStatuses": [{"name": "training", "state": state}],
        },
    }


# --- one run --------------------------------------------------------------------------------------


def calls_of_one_run() -> int:
    """From the creation of a Job to when nothing of it is left, on the tests' own server."""
    with ApiServer() as server, tempfile.TemporaryDirectory() as folder:
        file = server.write_kubeconfig(Path(folder) / "kubeconfig")
        api = KubernetesApi(server.namespace, environment={"KUBECONFIG": str(file)})
        api.require_rights()
        made = api.create_job(a_small_job())
        with JobInformer(api, "run=one") as watch:
            while not any(job.complete for job in watch.now().jobs):
                watch.wait(60)
        api.tail(api.pods("run=one")[0].name, 50)
        api.cluster_events(made.uid)
        api.delete("run=one", 60)
        return len(server.calls)


def a_small_job() -> dict[str, Any]:
    container = {"name": "training", "image": "python:3.11", "command": ["python", "-c", "pass"]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    labels = {"run": "one"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "one", "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": 2,
            "parallelism": 2,
            "backoffLimit": 0,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


if __name__ == "__main__":
    main()
