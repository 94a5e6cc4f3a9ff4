"""The cluster of these tests (our own API server, or a real one), and an S3 server beside it."""

import pytest

from ml_assets_tests.servers.kubernetes.cluster import cluster
from ml_assets_tests.servers.s3 import S3Server

__all__ = ["cluster"]


@pytest.fixture
def store(bucket: S3Server) -> S3Server:
    """Where pods and launchers keep what they share."""
    return bucket
