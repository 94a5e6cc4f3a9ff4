"""A server of `ml-assets ops api` in a process of its own, and plain HTTP to it."""

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

READER, OPERATOR = "rita's-token-of-32-characters....", "olga's-token-of-32-characters...."
TOKENS = {"ML_ASSETS_API_READERS": f"rita={READER}", "ML_ASSETS_API_OPERATORS": f"olga={OPERATOR}"}
PATIENCE = 120
"""Seconds: a busy machine starts slowly."""


@dataclass(frozen=True)
class Api:
    """The API at an address."""

    url: str

    def ask(
        self, path: str, body: object = None, token: str | None = OPERATOR, **headers: str
    ) -> tuple[int, Any]:
        """Status and JSON (or text) of a GET, or of a POST where there is a body."""
        return self.send("GET" if body is None else "POST", path, body, token, **headers)

    def send(
        self, method: str, path: str, body: object, token: str | None = OPERATOR, **headers: str
    ) -> tuple[int, Any]:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self.url}{path}", data, method=method)
        asked.add_header("Content-Type", "application/json")
        if token is not None:
            asked.add_header("Authorization", f"Bearer {token}")
        for name, value in headers.items():
            asked.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(asked, timeout=120) as answer:
                return answer.status, _read(answer.read())
        except urllib.error.HTTPError as refused:
            return refused.code, _read(refused.read())

    def problems(self, body: Mapping[str, Any]) -> dict[str, str]:
        """Field -> what is said of it, where a run is refused."""
        status, said = self.ask("/api/v1/pipelines/runs", body)
        assert status == 422, said
        return {one["field"]: one["said"] for one in said["problems"]}


def _read(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode()


@contextmanager
def api_of(world: World, **extra: str) -> Iterator[Api]:
    """The API of a world; ended by the block's end."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "ml_assets.cli.main", "ops", "api", "--port", str(port)]
    with subprocess.Popen(
        command, env={**world.environment, **TOKENS, **extra}, cwd=world.root
    ) as process:
        found = Api(f"http://127.0.0.1:{port}")
        try:
            end = time.monotonic() + PATIENCE
            while not _answers(found):
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.1)
            yield found
        finally:
            process.terminate()
            process.wait(60)


def _answers(api: Api) -> bool:
    try:
        return api.ask("/openapi.json", token=None)[0] == 200
    except OSError:
        return False
