"""The UI of a world with its daemon, as ``ml-assets ui`` starts it, and what it answers."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from ml_assets_tests.worlds.world import World, free_ports

PATIENCE = 120
"""Seconds: a busy machine starts the daemon and a run process slowly."""


@contextmanager
def serving(world: World, *, killed: bool = False) -> Iterator[str]:
    """The address at which the UI of the world is served; ended with its daemon at the end.

    Args:
        killed: it is not told to end: it dies with all that it started, as a machine goes down.
    """
    urls = [f"http://127.0.0.1:{port}" for port in free_ports(3)]
    names = ("ML_ASSETS_UI_URL", "ML_ASSETS_REPORTS_URL", "ML_ASSETS_MLFLOW_URL")
    command = [sys.executable, "-m", "ml_assets.cli.main", "ui"]
    log = world.root / "ui.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            env={**world.environment, **dict(zip(names, urls, strict=True))},
            cwd=world.root,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as server,
    ):
        try:
            _wait_for(f"{urls[0]}/server_info", server, log)
            yield urls[0]
        finally:
            if killed:
                _kill_all(server.pid)
            else:
                server.terminate()
            server.wait(timeout=60)


def _kill_all(pid: int) -> None:
    parent = psutil.Process(pid)
    for process in (parent, *parent.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def ask(address: str, query: str) -> Any:
    """What the UI's own API answers."""
    request = urllib.request.Request(
        f"{address}/graphql",
        json.dumps({"query": query}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found = json.load(answer)
    assert "errors" not in found, found
    return found["data"]


def _wait_for(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"the UI did not start: {log.read_text()}")
