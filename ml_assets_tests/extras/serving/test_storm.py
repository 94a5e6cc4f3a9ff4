"""Kills at random under load: a right answer or a clear 503, and whole again by itself."""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

import psutil
import pytest

from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.extras.serving.serving import PATIENCE, Serving
from ml_assets_tests.extras.serving.test_canary_traffic import QUICK, wait_until
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World, free_ports

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(1800)]
ROUNDS = 3
"""So often each fault comes."""
ORDERS = range(2640, 2650)
"""Of the newest week: their features are in the online store."""


@dataclass
class Supervisor:
    """Starts the server again whenever it is dead, as systemd or a kubelet does."""

    world: World
    server: Serving = field(init=False)
    starts: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator["Supervisor"]:
        (self._port,) = free_ports(1)
        self._start()
        watching = threading.Thread(target=self._watch)
        watching.start()
        try:
            yield self
        finally:
            self._ended.set()
            watching.join()
            self.server.process.kill()
            self.server.process.wait()

    def kill(self) -> None:
        """The server, at once; return when the next one answers."""
        before = self.starts
        self.server.process.kill()
        wait_until("another one is started", 60, lambda: self.starts > before)
        wait_until("it is ready", PATIENCE, self.ready)

    def kill_model(self) -> None:
        """The process that computes."""
        with suppress(psutil.Error):
            for child in psutil.Process(self.server.process.pid).children():
                child.kill()

    def ready(self) -> bool:
        return self.server.ready()

    def _start(self) -> None:
        command = (sys.executable, "-m", "ml_assets.cli.main", "serve", "deliveries")
        process = subprocess.Popen(
            [*command, "--port", str(self._port)],
            env=self.world.environment,
            cwd=self.world.root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.server = Serving(self._port, process)
        self.starts += 1

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            if self.server.process.poll() is not None:
                self._start()


@dataclass
class Load:
    """Three clients that ask for entities, one after the other, until stopped."""

    supervisor: Supervisor
    expected: dict[str, dict[int, float]] = field(default_factory=dict)
    """Model -> order -> what it says: always the same."""
    found: Counter[str] = field(default_factory=Counter)
    wrong: list[object] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(3)]
        for one in threads:
            one.start()
        try:
            yield
        finally:
            self._ended.set()
            for one in threads:
                one.join()

    def _ask(self, seed: int) -> None:
        draw = random.Random(seed)
        while not self._ended.wait(0.01):
            order = draw.choice(ORDERS)
            try:
                answer = self.supervisor.server.ask("/predict", {"entities": [{"order": order}]})
            except (OSError, HTTPException):  # it is dead: another one comes
                self.found["away"] += 1
                continue
            self.found[str(answer.status)] += 1
            if answer.status != 200:
                if answer.status != 503 or "error" not in answer.body:
                    self.wrong.append(answer)
                continue
            said = answer.body["predictions"][0]["probability"]
            if said != self.expected.setdefault(answer.body["model"], {}).setdefault(order, said):
                self.wrong.append(answer)


@contextmanager
def away(path: Path) -> Iterator[None]:
    """Nothing lies there for a while; a file goes with what SQLite keeps beside it."""
    beside = sorted(path.parent.glob(f"{path.name}*"))
    for one in beside:
        one.rename(one.with_name(f"away-{one.name}"))
    try:
        yield
    finally:
        assert not path.exists(), "nothing begins a new one in its place"
        for one in beside:
            one.with_name(f"away-{one.name}").rename(one)


def test_it_answers_with_what_it_has_and_is_whole_again_by_itself(tmp_path: Path) -> None:
    seed = int(os.environ.get("ML_ASSETS_TEST_SEED", time.time()))
    draw = random.Random(seed)
    print(f"ML_ASSETS_TEST_SEED={seed}")
    world = World(tmp_path).plant(deliveries)
    world.edit("deliveries", *QUICK.items())
    with (world.pipelines / "deliveries" / "defs.yaml").open("a") as spec:
        spec.write("  online: {entity: [order], look_back: 1}\n")
    world.cli("run", "deliveries")
    first = production(world)
    world.cli("run", "deliveries", "--epochs", "2")
    assert production(world) != first
    store, online = Path(world.settings.snapshots), Path(world.settings.online)
    with Supervisor(world).running() as supervisor:
        load = Load(supervisor)
        faults: list[Callable[[], None]] = [
            supervisor.kill,
            supervisor.kill_model,
            lambda: while_away(store, draw.uniform(0.5, 3)),
            lambda: while_away(online, draw.uniform(0.5, 3)),
        ]
        wait_until("the first server is ready", PATIENCE, supervisor.ready)
        with load.running():
            for fault in draw.sample(ROUNDS * faults, ROUNDS * len(faults)):
                fault()
                time.sleep(draw.uniform(0, 2))
            wait_until("it is ready", PATIENCE, supervisor.ready)
            said = ("--author", "ada", "--reason", "complaints", "--to", first)
            world.cli("release", "rollback", "deliveries", *said)
            wait_until("the rollback is followed", 60, lambda: answers(supervisor) == first)
        assert not load.wrong, load.wrong[:3]
        assert load.found["200"] > 100, load.found
        assert len(load.expected) == 2


def production(world: World) -> str:
    model = champion(read(open_pipeline("deliveries", world.settings).store, "deliveries"))
    assert model is not None
    return model


def answers(supervisor: Supervisor) -> str:
    answer = supervisor.server.ask("/predict", {"entities": [{"order": ORDERS[0]}]})
    return answer.body["model"] if answer.status == 200 else ""


def while_away(path: Path, seconds: float) -> None:
    with away(path):
        time.sleep(seconds)
