"""Runs by themselves on a cluster, one in five of them hit by a fault: how many end well.

Dagster's own schedules, sensors, queue and retries on a clock of ours, and the launcher of a
cluster on the tests' own. A few days here; ML_ASSETS_TEST_DAYS=67 lives two hundred runs
(`make long`).
"""

import base64
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ml_assets.cli.main import main
from ml_assets_tests.extras.scheduled.daemon import Daemon, configure, work_here, workspace
from ml_assets_tests.extras.scheduled.faults import BAD_FILE, KILLED, KINDS, Faults
from ml_assets_tests.extras.scheduled.season import Day, Season, is_training, plant
from ml_assets_tests.launch.kubernetes.stage import IMAGE, SECRET, URI
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.kubernetes.resources import JOBS
from ml_assets_tests.servers.s3 import s3_server

FEW = [Day(0, (BAD_FILE, "API says 503", "out of memory", "preempted")), Day(1, asleep=True)]
DAYS = int(os.environ.get("ML_ASSETS_TEST_DAYS") or len(FEW))
LEAST = 0.98

pytestmark = pytest.mark.timeout(300 + 240 * DAYS)


def planned(days: int) -> list[Day]:
    """A fault on most days; now and then a refusal, and once the daemon sleeps."""
    if days <= len(FEW):
        return FEW[:days]
    faults = [*((kind,) for kind in KINDS), ()]
    sleeps = days // 2
    return [
        Day(number, asleep=True)
        if number == sleeps
        else Day(number, faults[number % len(faults)], refused=number % 11 == 10)
        for number in range(days)
    ]


@dataclass
class Lived:
    """Days that are over."""

    plan: list[Day]
    hits: Counter[str]
    server: ApiServer
    said: dict[str, Any]
    """By `ml-assets ops reliability --json`."""

    def ended(self, *ends: str) -> list[dict[str, Any]]:
        return [work for work in self.said["work"] if work["end"] in ends]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    root, plan = tmp_path_factory.mktemp("season"), planned(DAYS)
    first = _due_now() - timedelta(days=len(plan) - 1)
    with ExitStack() as stack:
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        store = stack.enter_context(s3_server(environment))
        server = stack.enter_context(ApiServer())
        _settle_in(environment, root, server)
        plant(root / "pipelines", root / "sources", first)
        configure(root / "state" / "dagster")
        instance = stack.enter_context(dg.DagsterInstance.get())
        context = stack.enter_context(workspace(instance))
        faults = Faults(server, store)

        def work(run: dg.DagsterRun) -> bool:
            if season.doomed and is_training(run):
                season.doomed = False
                return faults.kill_worker(run, instance)
            return work_here(run, instance)

        daemon = Daemon(context, first - timedelta(hours=12), work)
        season = Season(root / "sources", daemon, faults, first)
        daemon.schedules()  # they are switched on from here
        for day in plan:
            season.live(day)
        assert not server.failures
        yield Lived(plan, faults.hits, server, _reliability(len(plan) + 2))


def _due_now() -> datetime:
    """The last refresh was due so long ago that it counts, and the next is not due for long."""
    return (datetime.now(UTC) - timedelta(hours=12)).replace(second=0, microsecond=0)


def _settle_in(environment: pytest.MonkeyPatch, root: Path, server: ApiServer) -> None:
    """A home of its own, and the cluster to train on."""
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    data = {key: base64.b64encode(os.environ[key].encode()).decode() for key in keys}
    metadata = {"name": SECRET}
    server.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    for name, value in {
        "ML_ASSETS_HOME": str(root / "state"),
        "ML_ASSETS_SOURCES": str(root / "sources"),
        "ML_ASSETS_PIPELINES": str(root / "pipelines"),
        "ML_ASSETS_LAUNCHER": "kubernetes",
        "ML_ASSETS_OBJECTS": URI,
        "ML_ASSETS_TRAINING_IMAGE": IMAGE,
        "AWS_REGION": "us-east-1",
        "KUBECONFIG": str(server.write_kubeconfig(root / "kubeconfig")),
        "DAGSTER_HOME": str(root / "state" / "dagster"),
    }.items():
        environment.setenv(name, value)
    environment.delenv("MLFLOW_TRACKING_URI", raising=False)


def _reliability(days: int) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patched:
        said: list[str] = []
        patched.setattr("builtins.print", lambda text: said.append(text))
        assert main(["ops", "reliability", "irises", "--days", str(days), "--json"]) == 0
    (found,) = json.loads(said[0])
    return found


def test_nothing_but_the_planned_missed_tick_ended_badly(lived: Lived):
    slept = [day for day in lived.plan if day.asleep]
    missed = lived.ended("missed")
    assert [work["cause"] for work in missed] == [
        "its tick never came: Dagster's daemon was not running" for _ in slept
    ]
    assert lived.said["under_way"] == 0
    came = lived.said["scheduled"] - len(missed)
    assert came == 3 * len(lived.plan) - len(slept), "sources, features and a model on each day"
    assert lived.said["well"] >= LEAST * came, lived.said["causes"]
    if DAYS >= 50:
        assert lived.said["share"] >= LEAST, lived.said["causes"]


def test_every_planned_fault_hit_and_there_were_enough(lived: Lived):
    assert lived.hits == Counter(kind for day in lived.plan for kind in day.faults)
    assert lived.hits.total() >= 0.2 * lived.said["scheduled"]


def test_a_model_that_the_gates_refused_is_a_good_end(lived: Lived):
    refused = [day for day in lived.plan if day.refused]
    assert len(lived.ended("refused")) == len(refused)


def test_what_was_tried_again_counts_once_and_says_why(lived: Lived):
    again = Counter(
        work["cause"] for work in lived.ended("well", "refused") if len(work["runs"]) > 1
    )
    assert again.total() == lived.hits[BAD_FILE] + lived.hits[KILLED]
    died = [cause for cause in again.elements() if "its process died" in cause]
    assert len(died) == lived.hits[KILLED]


def test_nothing_stays_on_the_cluster(lived: Lived):
    assert lived.server.pods() == []
    assert list(lived.server.store.all(JOBS, lived.server.namespace)) == []
