"""Dagster's own web server behind our guard: ``python -m ml_assets.adapters.webserver``.

Its options are those of ``dagster-webserver``; ``adapters/same_origin.py`` says which requests it
accepts.
"""

from typing import Any

from dagster_webserver import app, cli
from dagster_webserver.webserver import DagsterWebserver
from starlette.middleware import Middleware

from ml_assets.adapters.same_origin import guard
from ml_assets.settings import read_settings


class GuardedWebserver(DagsterWebserver[Any, Any]):
    """Dagster's application, which asks the guard before anything else."""

    def build_middleware(self) -> list[Middleware]:
        return [*guard(read_settings().ui_hosts), *super().build_middleware()]


def main() -> None:
    app.DagsterWebserver = GuardedWebserver  # pyright: ignore[reportPrivateImportUsage]
    cli.main()


if __name__ == "__main__":
    main()
