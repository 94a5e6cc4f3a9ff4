"""The cluster of these tests (our own API server, or a real one), and an S3 server beside it."""

import pytest

from ml_assets_tests.launch.kubernetes.stage import Stage
from ml_assets_tests.servers.kubernetes.cluster import cluster
from ml_assets_tests.servers.s3 import S3Server

__all__ = ["cluster"]


@pytest.fixture
def store(bucket: S3Server) -> S3Server:
    """Where pods and launchers keep what they share."""
    return bucket


@pytest.fixture
def stage(tmp_path, cluster, store):
    """A home beside the cluster, which has the Secret that pods read."""
    return Stage(tmp_path / "home", cluster, store).furnish()
