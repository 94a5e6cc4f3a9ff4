"""ml-assets ui: Dagster, MLflow and the reports in a browser, on this machine only."""

import argparse
import json
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from ml_assets.actions.servers import Program, Programs, require_free, stoppable
from ml_assets.cli.exit_codes import DONE, ERROR
from ml_assets.cli.serve_reports import port_number, serving
from ml_assets.cli.session import prepared_settings
from ml_assets.settings import Settings

_LOCAL = ("127.0.0.1", "localhost", "::1")
_NAMES = ("127.0.0.1", "localhost", "[::1]")
_SOCKET = "code-location.sock"


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
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="there is no login: keep it local; the names that"
        " a browser may ask it by are in ML_ASSETS_UI_HOSTS",
    )
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.instance import refuse_second_daemon  # Dagster takes a second to import

    settings = prepared_settings()
    refuse_second_daemon(settings.dagster_home)
    port = _port(arguments, settings)
    require_free(arguments.host, port, "Dagster", "that of ML_ASSETS_UI_URL, or --port")
    code = DONE
    with stoppable(), ExitStack() as stack:
        if _is_local(settings.reports_url):
            stack.enter_context(serving(settings))
        _tell(arguments, settings)
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="ml-assets-ui-")))
        location, *served = _dagster(arguments, settings, folder)
        programs = stack.enter_context(Programs(lambda line: print(line, file=sys.stderr)))
        for program in (location, *_mlflow(settings)):
            programs.start(program)
        if programs.wait(until=(folder / _SOCKET).exists) != DONE:  # the others ask it at once
            return ERROR
        for program in served:
            programs.start(program)
        code = programs.wait()
    return DONE if code == DONE else ERROR


def _dagster(arguments: argparse.Namespace, settings: Settings, folder: Path) -> Iterator[Program]:
    """What ``dagster dev`` starts, but for the web server, which is the guarded one."""
    python, module = (sys.executable, "-m"), "ml_assets.definitions"
    socket, workspace = folder / _SOCKET, folder / "workspace.yaml"
    location = {"socket": str(socket), "location_name": "ml_assets"}
    workspace.write_text(json.dumps({"load_from": [{"grpc_server": location}]}))
    start = ("code-server", "start", "-m", module, "--location-name", "ml_assets")
    yield Program("Dagster's code location", (*python, "dagster", *start, "-s", str(socket)))
    port = _port(arguments, settings)
    where = ("-h", arguments.host, "-p", str(port), "-w", str(workspace))
    names = (*settings.ui_hosts, arguments.host)
    hosts = " ".join(name for name in names if ":" not in name)  # of IPv6 the loopback's alone
    yield Program(
        "Dagster's web server",
        (*python, "ml_assets.actions.webserver", *where),
        environment={"ML_ASSETS_UI_HOSTS": hosts},
    )
    daemon = Path(sysconfig.get_path("scripts"), "dagster-daemon")
    yield Program("Dagster's daemon", (str(daemon), "run", "-w", str(workspace)))


def _mlflow(settings: Settings) -> Iterator[Program]:
    database = "://" in settings.tracking_uri and not settings.tracking_uri.startswith("http")
    if not database or not _is_local(settings.mlflow_url):
        return
    from ml_assets.records.tracking.mlflow import Tracking

    where = urlsplit(settings.mlflow_url)
    host, port = where.hostname or "127.0.0.1", where.port or 80
    require_free(host, port, "MLflow", "that of ML_ASSETS_MLFLOW_URL")
    Tracking(settings.tracking_uri, settings.home).ensure_database()
    address = ("--host", host, "--port", str(port))
    yield Program(
        "MLflow",
        (sys.executable, "-m", "mlflow", "server", "--workers", "1", *address),
        log=settings.home / "mlflow-server.log",
        environment={
            # not on the command line: everybody on this machine can read that
            "MLFLOW_BACKEND_STORE_URI": settings.tracking_uri,
            "MLFLOW_DEFAULT_ARTIFACT_ROOT": str(settings.home / "mlartifacts"),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
            "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(f"{name}:{port}" for name in _NAMES),
            "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": f"http://{where.netloc}",
        },
    )


def _tell(arguments: argparse.Namespace, settings: Settings) -> None:
    port = _port(arguments, settings)
    here = f"http://{arguments.host}:{port}"
    print(f"Dagster: {here}  (Ctrl-C stops all)")
    print(f"MLflow:  {settings.mlflow_url}")
    print(f"Reports: {settings.reports_url}", flush=True)
    if here != settings.ui_url and _is_local(settings.ui_url):
        print(f"links lead to {settings.ui_url}: set ML_ASSETS_UI_URL={here}", flush=True)


def _port(arguments: argparse.Namespace, settings: Settings) -> int:
    return arguments.port or urlsplit(settings.ui_url).port or 3000


def _is_local(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in _LOCAL
