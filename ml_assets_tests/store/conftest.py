"""A lakeFS server for all tests of the storage; every test has a repository of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ml_assets.store.lakefs.store import LakeFsStore
from ml_assets_tests.servers.lakefs import LakeFSServer, Setup, lakefs_server
from ml_assets_tests.worlds.lakefs import new_repository


@pytest.fixture(scope="session")
def gateway_server() -> Iterator[LakeFSServer]:
    """It cannot presign: what is uploaded goes through its S3 gateway."""
    with lakefs_server(Setup(blockstore="local")) as server:
        yield server


@pytest.fixture(scope="session")
def presigning_server() -> Iterator[LakeFSServer]:
    with lakefs_server() as server:
        yield server


@pytest.fixture
def lakefs(presigning_server: LakeFSServer) -> Iterator[LakeFSServer]:
    """The server with no fault planned."""
    presigning_server.faults.clear()
    yield presigning_server
    presigning_server.faults.clear()


OpenLakeFs = Callable[[LakeFSServer], LakeFsStore]


@pytest.fixture
def open_lakefs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenLakeFs:
    """Opens the test's repository on a server, made at the first call; it waits for nothing."""

    def opened(server: LakeFSServer) -> LakeFsStore:
        if not made:
            made.update(new_repository(server, tmp_path / "home"))
            for name, value in made.items():
                monkeypatch.setenv(name, value)
        return LakeFsStore(made["ML_ASSETS_SNAPSHOTS"], pause=lambda _: None)

    made: dict[str, str] = {}
    return opened
