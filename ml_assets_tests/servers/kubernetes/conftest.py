"""The cluster of these tests: our own API server, or a real one that the environment names."""

from ml_assets_tests.servers.kubernetes.cluster import cluster

__all__ = ["cluster"]
