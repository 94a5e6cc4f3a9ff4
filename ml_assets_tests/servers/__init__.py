"""Servers of the tests: Kubernetes' API, lakeFS, S3, Redis, Postgres; each speaks the real protocol."""
