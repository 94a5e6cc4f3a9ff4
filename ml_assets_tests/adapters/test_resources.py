"""What becomes of a Job when the process of the Dagster run that launched it is stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.adapters.resources import PID_TAG
from ml_assets.launch.kubernetes.names import PIPELINE_LABEL, selector_of
from ml_assets_tests.launch.kubernetes.stage import IMAGE, URI, Stage
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.kubernetes.cluster import TestCluster
from ml_assets_tests.servers.s3 import s3_server


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A cluster whose registry is away: a Job waits there for as long as it is left alone."""
    with s3_server(monkeypatch) as store, ApiServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        server.images.failing[IMAGE] = "dial tcp 10.0.0.1:443: i/o timeout"
        cluster = TestCluster(kubeconfig, server.namespace, IMAGE, server)
        yield Stage(tmp_path / "home", cluster, store).furnish()
        assert server.failures == []


def begin(stage: Stage, pipeline: str, tags: dict[str, str]) -> "subprocess.Popen[str]":
    """A run of Dagster's in a process of its own, which trains for a pipeline."""
    program, home = Path(__file__).with_name("launching.py"), stage.home / pipeline
    own = json.dumps({"pipeline": pipeline, **tags})
    return subprocess.Popen(
        [sys.executable, str(program), str(home), pipeline, own],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "DAGSTER_HOME": str(stage.home),
            "ML_ASSETS_HOME": str(home),
            "ML_ASSETS_LAUNCHER": "kubernetes",
            "ML_ASSETS_OBJECTS": URI,
            "ML_ASSETS_TRAINING_IMAGE": IMAGE,
            "KUBECONFIG": str(stage.cluster.kubeconfig),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
    )


def cancel(stage: Stage, pipeline: str) -> None:
    """As the UI does, before it interrupts the run's process."""
    with dg.DagsterInstance.from_config(str(stage.home)) as instance:
        (run,) = instance.get_runs(dg.RunsFilter(tags={"pipeline": pipeline}))
        instance.report_run_canceling(run)


@pytest.mark.daemon
def test_who_stops_a_run_ends_its_job_and_a_run_worker_that_is_moved_leaves_it(
    stage: Stage,
) -> None:
    stage.home.mkdir()
    (stage.home / "dagster.yaml").touch()
    with dg.DagsterInstance.from_config(str(stage.home)) as instance:
        instance.get_runs_count()  # four at once would make its tables at once
    command, worker = {PID_TAG: "1"}, {}
    asked = {"interrupted": command, "killed": command, "moved": worker, "cancelled": worker}
    runs = {name: begin(stage, name, tags) for name, tags in asked.items()}
    api = stage.api()
    while len(api.jobs(selector_of())) < len(runs):
        over = [run.communicate()[1] for run in runs.values() if run.poll() is not None]
        assert not over, over
        time.sleep(0.2)
    cancel(stage, "cancelled")
    for name, run in runs.items():
        run.send_signal(signal.SIGINT if name in ("interrupted", "cancelled") else signal.SIGTERM)
    for run in runs.values():
        said = run.communicate()[1]
        assert run.returncode != 0
        assert "DagsterExecutionInterruptedError" in said and "TypeError" not in said, said
    left = {job.labels[PIPELINE_LABEL] for job in api.jobs(selector_of())}
    assert left == {"moved"}, "who stops a run means its Job; who moves its process does not"
