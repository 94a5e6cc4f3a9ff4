"""The server follows the ledger by itself: no request fails while releases come and go."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.store.open import shared_snapshots
from ml_assets_tests.extras.serving.serving import Serving, serving
from ml_assets_tests.extras.serving.test_canary_traffic import wait_until
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.processes import below
from ml_assets_tests.worlds.world import World

pytestmark = pytest.mark.timeout(900)
ROWS = {
    "rows": [
        {"sepal_length": 5.9, "sepal_width": 3.0, "petal_length": 4.9, "petal_width": 1.7},
    ]
}


class Load:
    """Requests without a break, until stopped: what each was answered."""

    def __init__(self, server: Serving) -> None:
        self.statuses: Counter[int] = Counter()
        self.models: list[str] = []
        self._server = server
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(3)]
        for one in self._threads:
            one.start()

    def _ask(self) -> None:
        while not self._stop.is_set():
            answer = self._server.ask("/predict", ROWS)
            self.statuses[answer.status] += 1
            self.models.append(answer.body["model"])
            time.sleep(0.005)

    def stop(self) -> None:
        self._stop.set()
        for one in self._threads:
            one.join()


def in_production(world: World) -> str:
    model = champion(read(shared_snapshots(world.settings.snapshots), "irises"))
    assert model is not None
    return model


def wait_for(server: Serving, model: str) -> None:
    end = time.monotonic() + 120
    while server.ask("/predict", ROWS).body["model"] != model:
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_release_and_a_rollback_are_followed_and_no_request_fails(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    lax = irises.SPEC.replace("{kind: champion}", "{kind: champion, margin: 10.0}")
    (world.pipelines / "irises" / "defs.yaml").write_text(lax)
    world.cli("run", "irises")
    first = in_production(world)
    with serving(world, "irises") as server:
        load = Load(server)
        world.cli("run", "irises", "--epochs", "25")
        second = in_production(world)
        assert second != first
        wait_for(server, second)
        said = ("--author", "ada", "--reason", "complaints")
        for model in (first, second, first, second):  # five switches with the release
            world.cli("release", "rollback", "irises", "--to", model, *said)
            wait_for(server, model)
        # the ledger's store is away for some looks: the model that answers goes on
        store, away = Path(world.settings.snapshots), tmp_path / "away"
        store.rename(away)
        time.sleep(4)
        assert not store.exists(), "nothing begins a new store in its place"
        away.rename(store)
        world.cli("release", "rollback", "irises", "--to", first, *said)
        wait_for(server, first)
        load.stop()
        assert load.statuses.keys() == {200}
        changes = [a for a, b in zip(load.models, [*load.models[1:], ""], strict=True) if a != b]
        assert set(changes) == {first, second}
        counted = server.ask("/metrics").body
        assert "ml_assets_serving_switches_total 7.0" in counted

        # a recall says that what answers must not be used: it is silent then
        version = world.data_version("irises", "raw_snapshot", "raw_flowers")
        world.cli("data", "recall", f"irises/raw_snapshot/raw_flowers@{version[:12]}", *said)
        end = time.monotonic() + 60
        while (answer := server.ask("/predict", ROWS)).status == 200:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert answer.status == 503
        assert "recalled by ada" in answer.body["error"]
        assert not server.ready()


def flip(server: Serving, folder: Path) -> Iterator[None]:
    """The last bit of its weights differs."""
    (weights,) = folder.rglob("*.safetensors")
    weights.chmod(0o644)
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    server.process.send_signal(signal.SIGCONT)
    yield


def put_a_pipe(server: Serving, folder: Path) -> Iterator[None]:
    """Who opens its manifest to read it waits for somebody who writes."""
    (folder / "model.json").unlink()
    os.mkfifo(folder / "model.json")
    server.process.send_signal(signal.SIGCONT)
    yield


def hold(server: Serving, folder: Path) -> Iterator[None]:
    """Its process hangs as soon as it is there, as on a disk or a GPU that does not answer."""
    server.process.send_signal(signal.SIGCONT)
    wait_until("its process starts", 120, lambda: below(server.process.pid, folder.name))
    (process,) = below(server.process.pid, folder.name)
    process.suspend()
    yield
    assert process.status() == "stopped", "it is not given up yet"


@pytest.mark.parametrize("fault", [flip, put_a_pipe, hold])
def test_a_recalled_model_is_silent_though_its_successor_cannot_be_loaded(
    tmp_path: Path, fault: Callable[[Serving, Path], Iterator[None]]
) -> None:
    world = World(tmp_path).plant(irises)
    lax = irises.SPEC.replace("{kind: champion}", "{kind: champion, margin: 10.0}")
    (world.pipelines / "irises" / "defs.yaml").write_text(lax)
    world.cli("run", "irises")
    first, data = in_production(world), world.data_version("irises", "raw_snapshot", "raw_flowers")
    with serving(world, "irises") as server:
        server.process.send_signal(signal.SIGSTOP)  # it looks once the successor is damaged
        irises.write_flowers(world.sources, "virginica")
        world.cli("run", "irises")
        second = in_production(world)
        assert second != first
        with contextmanager(fault)(server, world.settings.home / "objects/models" / second):
            time.sleep(3)  # a look or two
            assert server.ask("/predict", ROWS).body["model"] == first
            said = ("--author", "ada", "--reason", "the file was forged")
            world.cli("data", "recall", f"irises/raw_snapshot/raw_flowers@{data[:12]}", *said)
            seconds = wait_until("it is silent", 15, lambda: not server.ready())
        answer = server.ask("/predict", ROWS)
        assert (answer.status, "recalled by ada" in answer.body["error"]) == (503, True)
        print(f"{fault.__name__}: silent {seconds:.1f} s after the recall")


def test_a_release_that_does_not_hold_is_not_served(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    said = world.cli("serve", "irises", "--port", "8089", code=1)
    assert "no model in production" in said
    world.cli("run", "irises")
    (weights,) = (world.root / "state" / "objects" / "models").rglob("*.safetensors")
    weights.chmod(0o644)
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    said = world.cli("serve", "irises", "--port", "8089", code=1)
    assert "It is not used" in said
