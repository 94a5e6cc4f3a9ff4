"""A canary in traffic: its share, its log, and three bad ones that are out within a minute."""

import csv
import http.client
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import dagster as dg
import numpy as np
import psutil
import pytest

from ml_assets.actions.render_release import read_handover
from ml_assets.definitions import build
from ml_assets.extras.serving.entry import served_tick
from ml_assets.extras.serving.prediction_log import FOLDER
from ml_assets.records.ledger.audit import problems
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import moves, stages
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.extras.serving.serving import Serving, serving
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.processes import below
from ml_assets_tests.worlds.world import World

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(1800)]
QUICK = {
    "{kind: champion}": "{kind: champion, margin: 10.0}",
    "baseline: constant}": "baseline: constant, margin: -10.0}",
    "epochs: 6": "epochs: 1",
    "processes: 2": "processes: 1",
    "strategy: shard": "strategy: replicate",
    "at_least: 0.55": "at_least: 0.01",
}
LARGER = {"train: 6, validation: 1, holdout: 2": "train: 5, validation: 1, holdout: 3"}
"""A holdout with enough rows of each depot for its slices."""
RELEASE = """\
  release:
    to: production
    canary: {periods: 1}
    rollout: {entity: [order], share: 0.05, abort: {shift: 0.3}}
"""
REQUESTS, SWITCHES = 10_000, 5
DEPOTS = ("north", "south", "west")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """One model in production that took another one's place, a third in canary."""
    found = World(tmp_path_factory.mktemp("traffic")).plant(
        deliveries, automation="{landing: {retrain: true}}"
    )
    found.edit("deliveries", *QUICK.items(), *LARGER.items())
    with (found.pipelines / "deliveries" / "defs.yaml").open("a") as spec:
        spec.write(RELEASE)
    found.cli("run", "deliveries")
    for weeks in (13, 14):
        deliveries.land(found.sources, weeks)
        found.cli("run", "deliveries")
    return found


@dataclass
class Load:
    """Requests from eight threads, each of one order, until stopped."""

    server: Serving
    pause: float = 0.0
    """Seconds between two requests of a thread."""
    statuses: Counter[int] = field(default_factory=Counter)
    by_canary: int = 0
    changes: int = 0
    """So often another champion than before answered a thread."""
    requests: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self) -> Iterator["Load"]:
        threads = [threading.Thread(target=self._ask) for _ in range(8)]
        for one in threads:
            one.start()
        try:
            yield self
        finally:
            self.stopped.set()
            for one in threads:
                one.join()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        champion = None
        while not self.stopped.is_set():
            with self._lock:
                order = len(self.requests)
                name = f"request-{order}"
                self.requests.append(name)
            row = {
                "order": order,
                "load": 1 + order * 7919 % 980 / 10,
                "docks": float(order % 5),
                "recent_late": (order * 104729 % 100) / 300,
                "depot": DEPOTS[order % 3],
            }
            headers = {"X-Request-ID": name}
            connection.request("POST", "/predict", json.dumps({"rows": [row]}), headers)
            answer = connection.getresponse()
            body = json.loads(answer.read())
            with self._lock:
                self.statuses[answer.status] += 1
                if "canary" in body:
                    self.by_canary += 1
                else:
                    self.changes += champion not in (None, body["model"])
                    champion = body["model"]
            time.sleep(self.pause)

    def wait_for(self, count: int) -> None:
        end = time.monotonic() + 600
        while len(self.requests) < count:
            assert time.monotonic() < end
            time.sleep(0.2)


def ledger(world: World) -> tuple[LedgerEntry, ...]:
    entries = read(open_pipeline("deliveries", world.settings).store, "deliveries")
    assert problems(entries) == ()
    return entries


def canary_answers(server: Serving) -> bool:
    return 'stage="canary"' in server.ask("/metrics").body


def wait_until(what: str, seconds: float, holds: Callable[[], object]) -> float:
    """Seconds until it holds."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, what
        time.sleep(0.1)
    return time.monotonic() - began


@contextmanager
def spoiled(server: Serving, model: str, kind: str) -> Iterator[None]:
    """The canary's process dies whenever it is there, or is held most of the time."""
    ended = threading.Event()

    def spoil() -> None:
        while not ended.is_set():
            for process in below(server.process.pid, model):
                with suppress(psutil.Error, ProcessLookupError):
                    if kind == "errors":
                        process.kill()
                    else:
                        os.kill(process.pid, signal.SIGSTOP)
                        time.sleep(0.5)
                        os.kill(process.pid, signal.SIGCONT)
            time.sleep(0.02)

    thread = threading.Thread(target=spoil)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def switch(world: World, server: Serving) -> None:
    """Roll back to the other model that was in production, and wait until it answers."""
    known = {one.model for one in moves(ledger(world), "production")}
    (other,) = known - {stages(ledger(world))["production"]}
    said = ("--author", "ada", "--reason", "complaints")
    world.cli("release", "rollback", "deliveries", "--to", other, *said)
    answers = f'model="{other}",stage="production"'
    wait_until("the switch is followed", 60, lambda: answers in server.ask("/metrics").body)


def abort_of(world: World, model: str) -> LedgerEntry | None:
    found = [one for one in ledger(world) if one.kind == "abort" and one.model == model]
    return found[-1] if found else None


def test_the_bundle_says_how_it_is_to_be_served_and_its_golden_vectors_hold(world: World) -> None:
    there, folder = stages(ledger(world)), world.root / "out"
    world.cli("release", "export", "deliveries", "--to", str(folder))
    told = read_handover(folder)
    (before,) = {one.model for one in moves(ledger(world), "production")} - {there["production"]}
    assert (told.model, told.rollback_to) == (there["production"], before)
    rollout = open_pipeline("deliveries", world.settings).spec.release.rollout
    assert rollout and told.rollout == rollout and rollout.abort.shift == 0.3
    assert {one.column for one in told.slices} == {"depot"}
    assert told.metrics["auc"].low <= told.metrics["auc"].value <= told.metrics["auc"].high
    assert told.measured.latency_ms > 0
    with serving(world, "deliveries") as server:
        model = f"/v2/models/deliveries/versions/{told.model}"
        known = server.ask(model).body
        for document, tensors in (("inputs", told.inputs), ("outputs", told.outputs)):
            named = [(one["name"], one["datatype"]) for one in known[document]]
            assert named == [(one.name, one.datatype) for one in tensors]
        kinds = {one.name: one.datatype for one in told.inputs}
        inputs = [
            {"name": name, "datatype": kinds[name], "shape": [len(values)], "data": values}
            for name, values in told.golden.inputs.items()
        ]
        answer = server.ask(f"{model}/infer", {"id": "golden", "inputs": inputs})
        assert answer.status == 200, answer.body
        near = (told.golden.relative, told.golden.absolute)
        for one in answer.body["outputs"]:
            expected = np.array(told.golden.outputs[one["name"]], np.float64)
            np.testing.assert_allclose(one["data"], expected, *near)


def test_versions_switch_a_canary_is_bad_and_no_request_fails_or_is_logged_twice(
    world: World,
) -> None:
    with serving(world, "deliveries", "--drain", "1") as server:
        wait_until("the canary answers", 120, lambda: canary_answers(server))
        with Load(server, pause=0.02).running() as load:
            for number in range(SWITCHES):
                load.wait_for(number * REQUESTS // SWITCHES)
                switch(world, server)
            load.wait_for(REQUESTS)
        assert load.statuses.keys() == {200}
        assert not [one.reason for one in ledger(world) if one.kind == "abort"], "it is a good one"
        assert 0.04 < load.by_canary / len(load.requests) < 0.06
        assert load.changes >= SWITCHES
        there = stages(ledger(world))
        # one that cannot answer: its process dies again and again
        bad = there["canary"]
        with Load(server).running() as second, spoiled(server, bad, "errors"):
            wait_until("out for its errors", 60, lambda: abort_of(world, bad))
        assert second.statuses.keys() == {200}, "the champion answers instead"
        line = abort_of(world, bad)
        assert line and "could not answer" in line.reason
        assert stages(ledger(world)) == {"production": there["production"]}
    pipeline = open_pipeline("deliveries", world.settings)
    hours = sorted(one.name for one in pipeline.objects.path(FOLDER, "deliveries").iterdir())
    for hour in hours:
        materialize(world, hour)
    tables = [pipeline.address("predictions", partition=hour) for hour in hours]
    found = [row for table in tables for row in pipeline.now().scan(table).collect().to_dicts()]
    rows = [row for row in found if row["request"] != "golden"]  # asked by the test before
    logged = Counter(row["request"] for row in rows)
    expected = Counter([*load.requests, *second.requests])  # both begin at 0
    assert logged == expected
    first = [row for row in rows if row["model"] == bad]
    assert len({row["key"]["order"] for row in first}) == load.by_canary
    assert all(isinstance(row["key"]["order"], int) for row in rows)
    with world.instance() as instance:
        told = served_tick(pipeline, None, instance).asset_events
    assert isinstance(told[0], dg.AssetCheckEvaluation) and not told[0].passed


def materialize(world: World, hour: str) -> None:
    with world.instance() as instance, pytest.MonkeyPatch.context() as environment:
        world.enter(environment)
        defs = build(world.settings, only="deliveries")
        instance.add_dynamic_partitions("deliveries__served_hours", [hour])
        job = defs.resolve_job_def("deliveries__predictions")
        assert job.execute_in_process(instance=instance, partition_key=hour).success


def test_a_slow_canary_is_out(world: World) -> None:
    world.cli("run", "deliveries", "--epochs", "2")
    bad = stages(ledger(world))["canary"]
    with serving(world, "deliveries") as server:
        wait_until("the canary answers", 120, lambda: canary_answers(server))
        with Load(server).running() as load, spoiled(server, bad, "slow"):
            wait_until("out for its latency", 60, lambda: abort_of(world, bad))
        assert load.statuses.keys() == {200}
    line = abort_of(world, bad)
    assert line and ("latency" in line.reason or "could not answer" in line.reason)


def test_a_canary_whose_predictions_moved_is_out(world: World) -> None:
    """Its labels broke: in the weeks that it was trained on, whatever was heavy was late."""
    heavy = {
        int(order)
        for file in (world.sources / "orders").glob("*.csv")
        for order, _, load, _ in csv.reader(file.read_text().splitlines()[1:])
        if float(load) > 40
    }
    weeks = sorted((world.sources / "arrivals").glob("*.jsonl"))
    for week in weeks[:-5]:
        events = [json.loads(line) for line in week.read_text().splitlines()]
        said = [json.dumps({**one, "late": one["order"] in heavy}) for one in events]
        deliveries.deliver(week, "\n".join(said) + "\n")
    world.cli("run", "deliveries", "--epochs", "12")
    bad = stages(ledger(world))["canary"]
    with serving(world, "deliveries") as server:
        wait_until("the canary answers", 120, lambda: canary_answers(server))
        with Load(server).running() as load:
            wait_until("out for its predictions", 60, lambda: abort_of(world, bad))
        assert load.statuses.keys() == {200}
    line = abort_of(world, bad)
    assert line and "the share below some value differs by" in line.reason
