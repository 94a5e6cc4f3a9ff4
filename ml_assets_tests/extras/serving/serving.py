"""A server of `ml-assets serve` in a process of its own, and plain HTTP to it."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ml_assets_tests.worlds.world import World, free_ports

PATIENCE = 120
"""Seconds: a busy machine loads torch slowly."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Serving:
    """A server that was started."""

    port: int
    process: subprocess.Popen[str]
    token: str = ""

    def ask(self, path: str, body: object = None, **headers: str) -> Answer:
        """What it answers: status, JSON (or text), headers."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", None if body is None else data
        )
        if self.token:
            asked.add_header("Authorization", f"Bearer {self.token}")
        for name, value in headers.items():
            asked.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return _answer(answer.status, answer.read(), dict(answer.headers))
        except urllib.error.HTTPError as refused:
            return _answer(refused.code, refused.read(), dict(refused.headers))

    def ready(self) -> bool:
        try:
            return self.ask("/v2/health/ready").status == 200
        except OSError:
            return False

    def wait_until_ready(self) -> None:
        end = time.monotonic() + PATIENCE
        while not self.ready():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end
            time.sleep(0.1)


def _answer(status: int, content: bytes, headers: dict[str, str]) -> Answer:
    try:
        body = json.loads(content)
    except ValueError:
        body = content.decode(errors="replace")
    return Answer(status, body, {name.lower(): value for name, value in headers.items()})


@contextmanager
def serving(world: World, pipeline: str, *options: str, token: str = "") -> Iterator[Serving]:
    """A server of the pipeline's release, ready; ended by the block's end."""
    (port,) = free_ports(1)
    extra = {"ML_ASSETS_SERVE_TOKENS": token} if token else {}
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "ml_assets.cli.main", "serve", pipeline),
            *("--port", str(port), *options),
        ],
        env={**world.environment, **extra},
        cwd=world.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        found = Serving(port, process, token)
        try:
            found.wait_until_ready()
            yield found
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=60)
