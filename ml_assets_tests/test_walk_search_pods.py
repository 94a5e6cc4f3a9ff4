"""A study whose trials are Jobs: pods that are killed, a node that goes, one whole account."""

import json
import time
from pathlib import Path

import pytest

from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.manifest import QUEUE_PRIORITY_LABEL
from ml_assets.launch.kubernetes.names import QUEUE_LABEL, VERB_LABEL, selector_of
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.kubernetes.resources import JOBS
from ml_assets_tests.servers.s3 import s3_server
from ml_assets_tests.worlds import searched
from ml_assets_tests.worlds.flight_pods import Run, begin
from ml_assets_tests.worlds.iris_pods import world_on

SEARCH = (
    searched.SEARCH.replace("trials: 6", "trials: 7").replace("seeds: 2", "seeds: 0")
    + "  queue: searches\n  queue_priority: low\n"
)
"""With the spec's own setting these are eight trainings."""
QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "LocalQueue",
    "metadata": {"name": "searches"},
    "spec": {"clusterQueue": "team"},
}


def lose_three_pods(
    server: ApiServer, api: KubernetesApi, run: Run
) -> tuple[dict[str, str], set[tuple[str, str]]]:
    """Two trainings' pods are deleted without a grace, the node of a third one goes.

    Returns:
        The Job of each -> what happened to it; and the queues that the trainings were in.
    """
    lost: dict[str, str] = {}
    queues: set[tuple[str, str]] = set()
    while len(lost) < 3 and not run.over():
        queues |= queues_of_trials(server)
        for pod in api.pods(f"{selector_of()},{VERB_LABEL}=train"):
            job = pod.name.rpartition("-")[0].rpartition("-")[0]
            if job in lost or len(lost) == 3 or not server.processes(pod.name):
                continue
            if len(lost) < 2:
                api.delete_pod(pod.name)
                lost[job] = "deleted"
            else:
                server.cut_off(pod.name)
                lost[job] = "cut off"
        time.sleep(0.1)
    return lost, queues


def queues_of_trials(server: ApiServer) -> set[tuple[str, str]]:
    """(queue, priority) of the Jobs that train now."""
    jobs = [job["metadata"] for job in server.store.all(JOBS, server.namespace)]
    labels = [job["labels"] for job in jobs if "-train-" in job["name"]]
    return {(one.get(QUEUE_LABEL, ""), one.get(QUEUE_PRIORITY_LABEL, "")) for one in labels}


@pytest.mark.daemon
@pytest.mark.timeout(1800)
def test_eight_trials_are_jobs_and_the_study_is_whole_whatever_pods_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(monkeypatch) as store, ApiServer() as server:
        world = world_on(store, server, tmp_path)
        server.apply(QUEUE)
        (world.pipelines / "irises" / "search.yaml").write_text(SEARCH)
        spec = world.pipelines / "irises" / "defs.yaml"  # long enough that a notice comes in time
        longer = spec.read_text().replace("epochs: 30", "epochs: 200")
        spec.write_text(longer.replace("evaluate_every: 20", "evaluate_every: 80"))
        run = begin(world, "run", "irises", "--search")
        environment = {"KUBECONFIG": world.extra["KUBECONFIG"]}
        api = KubernetesApi(server.namespace, environment=environment)
        lost, queues = lose_three_pods(server, api, run)
        said = run.ends()
        assert [*lost.values()] == ["deleted", "deleted", "cut off"], said
        assert queues == {("searches", "low")}
        study = json.loads(world.cli("models", "search", "irises", "--json"))
        trials = study["trials"]
        assert {one["end"] for one in trials} == {"finished", "pruned"}
        assert len({one["session"] for one in trials}) == len(trials) == 8
        assert sum(one["attempts"] - 1 for one in trials) >= len(lost)
        account = world.cli("models", "cost", "irises", "--by", "job", "--json")
        assert all(one["session"] in account for one in trials)
        cleared = {call.name for call in server.calls.of("delete", "jobs")}
        assert sum("-train-" in name for name in cleared) >= 8 + len(lost)
        assert server.pods() == []
        assert server.failures == []
