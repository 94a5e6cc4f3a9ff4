"""A real Postgres server of the tests' own, where one is installed."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PASSWORD = "hush-this-is-no-key"


def _programs() -> Path | None:
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").is_file()), None)


@dataclass(frozen=True)
class PostgresServer:
    """A server with one empty database, which its owner can end and start again."""

    folder: Path
    port: int
    user: str | None

    @property
    def place(self) -> tuple[str, int, str, str, str]:
        """Host, port, database, user and password."""
        return "127.0.0.1", self.port, "postgres", "me", PASSWORD

    @property
    def url(self) -> str:
        host, port, database, user, password = self.place
        return f"postgresql+psycopg://{user}:{password}@{host}:{port}/{database}"

    def control(self, verb: str, mode: str = "fast") -> None:
        """``start``, ``stop`` or ``restart``; ended ``fast`` or ``immediate``."""
        programs = _programs()
        assert programs is not None
        listening = f"-p {self.port} -c listen_addresses=127.0.0.1"
        options = ("-o", f"{listening} -c unix_socket_directories='' -F")
        how = (*(() if verb == "stop" else options), *(() if verb == "start" else ("-m", mode)))
        log = ("-l", self.folder.parent / "log")
        where = (programs / "pg_ctl", "--pgdata", self.folder, "--wait")
        _run(*where, *how, *log, verb, user=self.user)

    def query(self, asked: str) -> list[tuple[Any, ...]]:
        """Rows; waits for a server that is away, and is empty where there is no such table yet."""
        import psycopg

        until = time.monotonic() + 30
        while True:
            try:
                with psycopg.connect(self.url.replace("+psycopg", "")) as connection:
                    return connection.execute(asked.encode()).fetchall()
            except psycopg.errors.UndefinedTable:
                return []
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database; the test is skipped where there is no server to start."""
    with postgres_server() as server:
        yield server.url


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """The server itself; the test is skipped where there is none to start."""
    programs = _programs()
    if programs is None:
        pytest.skip("Postgres is not installed: there is no initdb")
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[postgres]'")
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    with tempfile.TemporaryDirectory(prefix="pg") as place:
        folder = Path(place) / "data"
        secret = Path(place) / "secret"
        secret.write_text(PASSWORD)
        if user:
            shutil.chown(place, user)
            shutil.chown(secret, user)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        _run(
            programs / "initdb",
            *("--pgdata", folder, "--username", "me", "--auth", "scram-sha-256"),
            *("--pwfile", secret, "--no-sync"),
            user=user,
        )
        server = PostgresServer(folder, port, user)
        server.control("start")
        try:
            yield server
        finally:
            server.control("stop", "immediate")


def _run(*command: object, user: str | None) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        user=user,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
