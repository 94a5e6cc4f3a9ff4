"""Servers of the tests (Kubernetes, lakeFS, S3, Redis, Postgres): each speaks the real protocol."""
