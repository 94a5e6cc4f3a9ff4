"""Commands that begin as forks of a process that has loaded what they load.

An interpreter of its own spends two to four CPU seconds on imports, as long as the command itself.
The fork has an environment, a folder, streams and an end of its own, as a new process has.
"""

import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, NoReturn

from ml_assets.records.tracking import mlflow_server

LOADED = (
    "alembic.config",
    "dagster",
    "mlflow.store.tracking.sqlalchemy_store",
    "numpy",
    "polars",
    "ml_assets.actions.run.run",
    "ml_assets.adapters.execute",
    "ml_assets.cli.main",
    "ml_assets.cli.run",
    "ml_assets.definitions",
)
"""What ``ml-assets run`` loads; the threads that this begins are of allocators that know forks."""
OWN = ("ML_ASSETS_", "AWS_", "DAGSTER_", "MLFLOW_", "TORCH_")
"""Begins of variables that nothing in ``LOADED`` reads while it is imported."""
_LONGEST = 1 << 17


@dataclass(frozen=True)
class Warm:
    """The process that has loaded all."""

    control: socket.socket
    inherited: Mapping[str, str]
    """What it was started with."""

    def takes(self, environment: Mapping[str, str]) -> bool:
        """Whether a command of this environment is the same as a fork."""
        return _foreign(environment) == _foreign(self.inherited)

    def run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        given: str,
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        """As ``subprocess.run`` of ml-assets, whose output is captured."""
        request = {"arguments": arguments, "environment": dict(environment), "folder": str(folder)}
        here, there = socket.socketpair()
        with TemporaryFile("w+") as stdin, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            with here:
                with there:
                    stdin.write(given)
                    stdin.seek(0)
                    files = [stdin.fileno(), out.fileno(), err.fileno(), there.fileno()]
                    message = json.dumps(request).encode()
                    socket.send_fds(self.control, [message], files)
                pid, code = _ended(here, timeout)
            if code is None:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired([*arguments], timeout)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess([*arguments], code, out.read(), err.read())


@cache
def warm() -> Warm:
    """This process' own; it ends with it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(OWN)}
    with its:
        subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(its.fileno())],
            env=inherited,
            pass_fds=[its.fileno()],
            stdout=subprocess.DEVNULL,
        )
    return Warm(ours, inherited)


def _foreign(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if not k.startswith((*OWN, "PYTEST_"))}


def _ended(reply: socket.socket, timeout: float) -> tuple[int, int | None]:
    """The number of the process, and its exit code; None: it goes on."""
    with reply.makefile() as lines:
        pid = int(lines.readline())
        reply.settimeout(timeout)
        try:
            return pid, int(lines.readline())
        except TimeoutError:
            return pid, None


def _serve(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each request: returns it in a process of its own; None in the end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, files, *_ = socket.recv_fds(control, _LONGEST, 4)
        if not message:
            return None
        if not os.fork():
            control.close()
            return json.loads(message), files
        for file in files:
            os.close(file)


def _watch(reply: socket.socket) -> None:
    """Go on as the command, in a process of its own whose number and end are told."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if not pid:
        reply.close()
        return
    reply.sendall(f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    reply.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _read_migrations() -> None:
    """Dagster's, which a command reads once, before it makes its first database."""
    from dagster import DagsterInstance

    from ml_assets.adapters.open_databases import read_migrations_once

    read_migrations_once()
    with TemporaryDirectory() as folder, DagsterInstance.local_temp(folder):
        pass


def _main(control: socket.socket) -> NoReturn:
    mlflow_server.configure()
    for name in LOADED:
        importlib.import_module(name)
    _read_migrations()
    gc.collect()
    gc.freeze()
    asked = _serve(control)
    if asked is None:
        sys.exit()
    request, files = asked
    _watch(socket.socket(fileno=files.pop()))
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    from ml_assets.cli import main

    sys.argv = [str(main.__file__), *request["arguments"]]
    sys.exit(main.main())


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
