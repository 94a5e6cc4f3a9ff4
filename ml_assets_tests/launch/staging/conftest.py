"""An S3 server, and homes whose pods are processes of this machine."""

import pytest

from ml_assets_tests.launch.real import write_set
from ml_assets_tests.launch.staging.pods import Home
from ml_assets_tests.servers.s3 import s3_server


@pytest.fixture
def server(monkeypatch):
    with s3_server(monkeypatch) as found:
        yield found


@pytest.fixture
def home(tmp_path, server):
    found = Home(tmp_path / "home")
    yield found
    found.end()


@pytest.fixture
def data(home):
    """A training set in the cache of the home."""
    return write_set(home.folder / "objects" / "shards" / "demo")
