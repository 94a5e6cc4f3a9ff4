"""A real Postgres server of the tests' own, where one is installed."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PASSWORD = "hush-this-is-no-key"


def _programs() -> Path | None:
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").is_file()), None)


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database; the test is skipped where there is no server to start."""
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
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -F"
        control = (programs / "pg_ctl", "--pgdata", folder)
        _run(*control, "--wait", "-o", options, "-l", Path(place) / "log", "start", user=user)
        try:
            yield f"postgresql+psycopg://me:{PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            _run(*control, "--mode", "immediate", "stop", user=user)


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
