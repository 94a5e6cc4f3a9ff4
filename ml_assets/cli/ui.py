"""ml-assets ui: Dagster, MLflow and the reports in a browser, on this machine only."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

from ml_assets.cli.exit_codes import DONE, ERROR
from ml_assets.cli.serve_reports import port_number, serving
from ml_assets.cli.session import prepared_settings
from ml_assets.runs.home import PACKAGE
from ml_assets.runs.servers import Program, running, stoppable, wait_for_first
from ml_assets.settings import Settings

_LOCAL = ("127.0.0.1", "localhost", "::1")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "ui",
        help="open Dagster at http://127.0.0.1:3000, with MLflow and the reports beside it",
        description="Serves the Dagster UI, MLflow's pages and the evaluation reports, so that the"
        " links between them open. Ctrl-C ends all three. Addresses: ML_ASSETS_UI_URL,"
        " ML_ASSETS_MLFLOW_URL, ML_ASSETS_REPORTS_URL; one that is not of this machine is taken"
        " to be served already.",
    )
    parser.add_argument(
        "--port", type=port_number, help="of Dagster; default: that of ML_ASSETS_UI_URL"
    )
    parser.add_argument("--host", default="127.0.0.1", help="there is no login: keep it local")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.runs.instance import refuse_second_daemon  # Dagster takes a second to import

    settings = prepared_settings()
    refuse_second_daemon(settings.dagster_home)
    code = DONE
    with stoppable(), ExitStack() as stack:
        if _is_local(settings.reports_url):
            stack.enter_context(serving(settings))
        _tell(arguments, settings)
        programs = _programs(arguments, settings)
        started = [(program, stack.enter_context(running(program))) for program in programs]
        code = wait_for_first(started, lambda line: print(line, file=sys.stderr))
    return DONE if code == DONE else ERROR


def _programs(arguments: argparse.Namespace, settings: Settings) -> Iterator[Program]:
    port = str(arguments.port or urlsplit(settings.ui_url).port or 3000)
    python = (sys.executable, "-m")
    workspace = ("-w", str(PACKAGE / "workspace.yaml"), "-h", arguments.host, "-p", port)
    yield Program("Dagster", (*python, "dagster", "dev", *workspace))
    database = "://" in settings.tracking_uri and not settings.tracking_uri.startswith("http")
    if database and _is_local(settings.mlflow_url):
        from ml_assets.registry.tracking.mlflow import Tracking

        Tracking(settings.tracking_uri, settings.home).ensure_database()
        where = urlsplit(settings.mlflow_url)
        address = ("--host", where.hostname or "127.0.0.1", "--port", str(where.port or 80))
        yield Program(
            "MLflow",
            (*python, "mlflow", "server", "--workers", "1", *address),
            log=settings.home / "mlflow-server.log",
            environment={
                # not on the command line: everybody on this machine can read that
                "MLFLOW_BACKEND_STORE_URI": settings.tracking_uri,
                "MLFLOW_DEFAULT_ARTIFACT_ROOT": str(settings.home / "mlartifacts"),
                "MLFLOW_DISABLE_TELEMETRY": "true",
            },
        )


def _tell(arguments: argparse.Namespace, settings: Settings) -> None:
    port = arguments.port or urlsplit(settings.ui_url).port or 3000
    here = f"http://{arguments.host}:{port}"
    print(f"Dagster: {here}  (Ctrl-C stops all)")
    print(f"MLflow:  {settings.mlflow_url}")
    print(f"Reports: {settings.reports_url}", flush=True)
    if here != settings.ui_url and _is_local(settings.ui_url):
        print(f"links lead to {settings.ui_url}: set ML_ASSETS_UI_URL={here}", flush=True)


def _is_local(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in _LOCAL
