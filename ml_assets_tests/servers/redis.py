"""A real Redis server on a port of its own, for as long as a test runs."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PASSWORD = "hush-hush"


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Its URL. Skips where no server is installed."""
    pytest.importorskip("redis", reason="the extra `redis` is not installed")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed (Debian and Ubuntu: apt-get install it)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    options += ["--requirepass", PASSWORD, "--dir", str(folder)]
    with subprocess.Popen([program, *options], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert any("Ready to accept connections" in line for line in server.stdout)
            yield f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
        finally:
            server.terminate()
