"""What tests of several rooms use: an S3 server, and two released pipelines to read, not change."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from xdist.remote import Producer

from ml_assets.cli.main import main
from ml_assets_tests.scheduling import ByWorld
from ml_assets_tests.servers.s3 import S3Server, s3_server
from ml_assets_tests.worlds import deliveries, irises
from ml_assets_tests.worlds.world import World, free_ports

settings.register_profile("no_deadline", deadline=None)  # no test is about seconds
settings.load_profile("no_deadline")
_HERE = Path(__file__).parent
_LONG = {
    _HERE / line
    for line in (_HERE / "long_tests.txt").read_text().splitlines()
    if not line.startswith("#")
}


_SHARED = {"released", "made"}
"""Fixtures of worlds that many tests read; ``made`` is the red team's."""


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Irises and deliveries, each with a release; then a stricter floor refused the irises' model.

    The addresses that links lead to are free ports, and the training program's ranks talk.
    """
    ports = dict(zip(("UI", "REPORTS", "MLFLOW"), free_ports(3), strict=True))
    extra = {f"ML_ASSETS_{name}_URL": f"http://127.0.0.1:{port}" for name, port in ports.items()}
    world = World(
        tmp_path_factory.mktemp("released"), {**extra, "TORCH_CPP_LOG_LEVEL": "INFO"}
    ).plant(irises, deliveries)
    world.cli("run", "irises")
    spec = world.pipelines / "irises" / "defs.yaml"
    good = spec.read_text()
    spec.write_text(good.replace("at_least: 0.8", "at_least: 0.9999"))
    world.cli("run", "irises", code=3)
    spec.write_text(good)
    world.cli("run", "deliveries")
    return world


class Said(NamedTuple):
    out: str
    err: str


Cli = Callable[..., Said]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Calls ml-assets in this process, holds it to an exit code, and returns what it printed."""

    def called(*arguments: str, code: int = 0) -> Said:
        capsys.readouterr()
        ended = main(arguments)
        out, err = capsys.readouterr()
        assert ended == code, out + err
        return Said(out, err)

    return called


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for pipelines that is not there yet, with state and sources beside it."""
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ML_ASSETS_PIPELINES", str(tmp_path / "pipelines"))
    monkeypatch.delenv("ML_ASSETS_SOURCES", raising=False)
    return tmp_path / "pipelines"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByWorld | None:
    """Take the place of ``--dist loadfile``."""
    return ByWorld(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files are for ``make long``; who reads a shared world waits for its three runs."""
    for item in items:
        if item.path in _LONG:
            item.add_marker(pytest.mark.daemon)
        if _SHARED.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An S3 server with one empty bucket; the environment leads boto3 to it."""
    with s3_server(monkeypatch) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """Ctrl-C works: a background shell would have handed down SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
