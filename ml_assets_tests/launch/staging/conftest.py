"""Homes that share a bucket, and whose pods are processes of this machine."""

import pytest

from ml_assets_tests.launch.real import write_set
from ml_assets_tests.launch.staging.pods import Home


@pytest.fixture
def home(tmp_path, bucket):
    found = Home(tmp_path / "home")
    yield found
    found.end()


@pytest.fixture
def data(home):
    """A training set in the cache of the home."""
    return write_set(home.folder / "objects" / "shards" / "demo")
