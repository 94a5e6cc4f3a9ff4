"""A study whose trials are Jobs: pods that are killed, trials that are pruned, one account."""

import json
import time
from pathlib import Path

import pytest

from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.names import VERB_LABEL, selector_of
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.s3 import s3_server
from ml_assets_tests.worlds import searched
from ml_assets_tests.worlds.flight_pods import Run, begin
from ml_assets_tests.worlds.iris_pods import world_on

SEARCH = searched.SEARCH.replace("trials: 6", "trials: 7").replace("seeds: 2", "seeds: 0")


def kill_two_trials(api: KubernetesApi, run: Run) -> set[str]:
    """Delete the pods of two trainings without a grace, as machines go; their Jobs' names."""
    killed: set[str] = set()
    while len(killed) < 2 and not run.over():
        for pod in api.pods(f"{selector_of()},{VERB_LABEL}=train"):
            job = pod.name.rpartition("-")[0].rpartition("-")[0]
            if len(killed) < 2 and job not in killed:
                api.delete_pod(pod.name)
                killed.add(job)
        time.sleep(0.5)
    return killed


@pytest.mark.daemon
@pytest.mark.timeout(1800)
def test_eight_trials_are_jobs_and_the_study_is_whole_whatever_pods_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(monkeypatch) as store, ApiServer() as server:
        world = world_on(store, server, tmp_path)
        (world.pipelines / "irises" / "search.yaml").write_text(SEARCH)
        run = begin(world, "run", "irises", "--search")
        environment = {"KUBECONFIG": world.extra["KUBECONFIG"]}
        killed = kill_two_trials(KubernetesApi(server.namespace, environment=environment), run)
        said = run.ends()
        assert len(killed) == 2, said
        study = json.loads(world.cli("models", "search", "irises", "--json"))
        ends = [one["end"] for one in study["trials"]]
        assert len(ends) == 8
        assert set(ends) == {"finished", "pruned"}
        assert len({one["session"] for one in study["trials"]}) == 8
        assert sum(one["attempts"] for one in study["trials"]) >= 10
        account = world.cli("models", "cost", "irises", "--by", "job", "--json")
        assert all(one["session"] in account for one in study["trials"])
        assert server.pods() == []
