"""Defines the programs behind ``ml-assets ui``: Dagster in three parts, and MLflow."""

import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

import ml_assets
from ml_assets.actions.servers import Program
from ml_assets.settings import Settings
from ml_assets.settings.addresses import require_free

SOCKET = "code-location.sock"
"""Where the code location answers, in the folder that the programs share."""
_QUIET = ("--log-level", "warning")
"""Every look of a sensor would be a line: what people must know is a warning."""
_QUIET_DAEMON = ("--log-level", "error")
"""Its one warning, of a state folder without history, is none. What could not look tells alerts."""
_QUIET_WEB = ("--dagster-log-level", "warning")
LIBRARY = str(Path(ml_assets.__path__[0]).parent)
"""Dagster and uvicorn put a folder before all others that modules come from: else that in which the
command is called, where a ``yaml.py`` may have come with somebody's data."""
_LOCAL = ("127.0.0.1", "localhost", "::1")
_NAMES = ("127.0.0.1", "localhost", "[::1]")


def dagster_programs(host: str, port: int, settings: Settings, folder: Path) -> Iterator[Program]:
    """What ``dagster dev`` starts, but for the web server, which is the guarded one."""
    python, module = (sys.executable, "-m"), "ml_assets.definitions"
    socket, workspace = folder / SOCKET, folder / "workspace.yaml"
    location = {"socket": str(socket), "location_name": "ml_assets"}
    workspace.write_text(json.dumps({"load_from": [{"grpc_server": location}]}))
    start = ("code-server", "start", *_QUIET, "-m", module, "--location-name", "ml_assets")
    start += ("-d", LIBRARY)
    yield Program("Dagster's code location", (*python, "dagster", *start, "-s", str(socket)))
    where = (*_QUIET_WEB, "-h", host, "-p", str(port), "-w", str(workspace))
    names = (*settings.ui_hosts, host)
    hosts = " ".join(name for name in names if ":" not in name)  # of IPv6 the loopback's alone
    yield Program(
        "Dagster's web server",
        (*python, "ml_assets.adapters.webserver", *where),
        environment={"ML_ASSETS_UI_HOSTS": hosts},
    )
    daemon = Path(sysconfig.get_path("scripts"), "dagster-daemon")
    yield Program("Dagster's daemon", (str(daemon), "run", *_QUIET_DAEMON, "-w", str(workspace)))


def mlflow_program(settings: Settings) -> Iterator[Program]:
    """MLflow's server, where runs go to a database and nobody else serves it; else nothing."""
    database = "://" in settings.tracking_uri and not settings.tracking_uri.startswith("http")
    if not database or not is_local(settings.mlflow_url):
        return
    from ml_assets.records.tracking.mlflow import Tracking

    where = urlsplit(settings.mlflow_url)
    host, port = where.hostname or "127.0.0.1", where.port or 80
    require_free(host, port, "MLflow", "that of ML_ASSETS_MLFLOW_URL")
    Tracking(settings.tracking_uri, settings.home).ensure_database()
    address = ("--host", host, "--port", str(port))
    modules = ("--uvicorn-opts", f"--app-dir {quote(LIBRARY)}")
    yield Program(
        "MLflow",
        (sys.executable, "-m", "mlflow", "server", "--workers", "1", *address, *modules),
        log=settings.home / "mlflow-server.log",
        environment={
            # not on the command line: everybody on this machine can read that
            "MLFLOW_BACKEND_STORE_URI": settings.tracking_uri,
            "MLFLOW_DEFAULT_ARTIFACT_ROOT": str(settings.home / "mlartifacts"),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
            # eight processes for jobs of its assistant and traces, which nothing here asks for
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(f"{name}:{port}" for name in _NAMES),
            "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": f"http://{where.netloc}",
        },
    )


def is_local(url: str) -> bool:
    """Whether an address is one of this machine, so that we serve what is there."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in _LOCAL
