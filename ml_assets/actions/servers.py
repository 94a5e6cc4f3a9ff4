"""Runs programs side by side until one signal, or the end of a required one, ends them all.

Each has a supervisor, so that none is left behind, even when this process is killed. The programs
behind ``ml-assets ui`` are Dagster in three parts, and MLflow.
"""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from types import FrameType
from urllib.parse import urlsplit

import ml_assets
from ml_assets.errors import SettingsError
from ml_assets.launch.local import supervisor
from ml_assets.settings import Settings
from ml_assets.settings.addresses import require_free

GRACE_SECONDS = 15.0
_POLL_SECONDS = 0.2
_NEAR = 100
_LAST_PORT = 65535


@dataclass(frozen=True)
class ServerProgram:
    """A server as a command."""

    name: str
    command: tuple[str, ...]
    log: Path | None = None
    """Where its output goes; None: to the terminal, and the others end with it."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to ours; not in repr, for an address may hold a password."""


class StopSignal(BaseException):
    """A signal asked for the end: no error, so nothing that takes errors takes it."""


class _Signal:
    """The first signal that asks for the end; a second one does not disturb the ending."""

    def __init__(self) -> None:
        self.came = False

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        if not self.came:
            self.came = True
            raise StopSignal


_signal: ContextVar[_Signal | None] = ContextVar("signal", default=None)


def free_port(first: int) -> int:
    """The first port of the loopback address, from a given one on, that nobody uses.

    Raises:
        SettingsError: none of the next hundred is free.
    """
    for port in range(first, min(first + _NEAR, _LAST_PORT + 1)):
        with suppress(SettingsError):
            require_free("127.0.0.1", port, "", "")
            return port
    raise SettingsError(
        f"None of the {_NEAR} ports from {first} on is free: choose another with --port."
    )


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and SIGINT end the block, also where a background shell left SIGINT ignored.

    Python drops what is raised in a destructor: where the signal came in one, ``Programs`` see it.
    """
    asked = _Signal()
    token = _signal.set(asked)
    stop = asked.stop
    old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except StopSignal:
        return
    finally:
        _signal.reset(token)
        for number, handler in old.items():
            signal.signal(number, handler)


class Programs:
    """Programs that end together when the block is left, each with all that it started.

    Args:
        tell: is handed a line for each that ended by itself.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._running: list[tuple[ServerProgram, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> "Programs":
        return self

    def __exit__(self, *error: object) -> None:
        """Tell all first: their graces run side by side."""
        for _, process in self._running:
            _tell_to_end(process)
        end = time.monotonic() + GRACE_SECONDS + 5
        for _, process in self._running:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                process.wait()

    def start(self, program: ServerProgram) -> None:
        """Start one, whose process group a Ctrl-C does not reach: this process ends it."""
        _go_on()
        tied = (sys.executable, "-I", supervisor.__file__, str(os.getpid()), str(GRACE_SECONDS))
        with program.log.open("ab") if program.log else nullcontext() as output:
            process = subprocess.Popen(
                [*tied, *program.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **supervisor.safe_path(), **program.environment},
                start_new_session=True,
            )
        self._running.append((program, process))

    def wait(self, until: Callable[[], bool] = lambda: False) -> int:
        """Wait until something holds, or one has ended that writes to the terminal: its exit code.

        One with a log of its own is beside the others: its end is told, and they go on.
        """
        told: set[int] = set()
        while not until():
            _go_on()
            for program, process in self._running:
                code = process.poll()
                if code is None or process.pid in told:
                    continue
                told.add(process.pid)
                seen = f"; see {program.log}" if program.log else ""
                self._tell(f"{program.name} ended with code {code}{seen}")
                if program.log is None:
                    return code
            time.sleep(_POLL_SECONDS)
        return 0


def _go_on() -> None:
    """Return where no signal has asked for the end.

    Raises:
        StopSignal: one has.
    """
    asked = _signal.get()
    if asked and asked.came:
        raise StopSignal


def _tell_to_end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)


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


def dagster_programs(
    host: str, port: int, settings: Settings, folder: Path
) -> Iterator[ServerProgram]:
    """Yield what ``dagster dev`` starts, but for the web server, which is the guarded one."""
    python, module = (sys.executable, "-m"), "ml_assets.definitions"
    socket, workspace = folder / SOCKET, folder / "workspace.yaml"
    location = {"socket": str(socket), "location_name": "ml_assets"}
    workspace.write_text(json.dumps({"load_from": [{"grpc_server": location}]}))
    start = ("code-server", "start", *_QUIET, "-m", module, "--location-name", "ml_assets")
    start += ("-d", LIBRARY)
    yield ServerProgram("Dagster's code location", (*python, "dagster", *start, "-s", str(socket)))
    where = (*_QUIET_WEB, "-h", host, "-p", str(port), "-w", str(workspace))
    names = (*settings.ui_hosts, host)
    hosts = " ".join(name for name in names if ":" not in name)  # of IPv6 the loopback's alone
    yield ServerProgram(
        "Dagster's web server",
        (*python, "ml_assets.adapters.webserver", *where),
        environment={"ML_ASSETS_UI_HOSTS": hosts},
    )
    daemon = Path(sysconfig.get_path("scripts"), "dagster-daemon")
    yield ServerProgram(
        "Dagster's daemon", (str(daemon), "run", *_QUIET_DAEMON, "-w", str(workspace))
    )


def mlflow_program(settings: Settings) -> Iterator[ServerProgram]:
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
    yield ServerProgram(
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
    """Return whether an address is one of this machine, so that we serve what is there."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in _LOCAL
