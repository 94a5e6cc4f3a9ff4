"""An instance that launches runs as Jobs, as the adapters' tests have it."""

from ml_assets_tests.adapters.conftest import runs_are_jobs

__all__ = ["runs_are_jobs"]
