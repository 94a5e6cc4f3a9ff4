"""The three servers of `ml-assets ui`, started as a user starts them, and asked."""

import http.client
import json
import re
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ml_assets_tests.worlds.world import World

PATIENCE = 180
"""Seconds: a busy machine starts three servers slowly."""
RUN = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
ASSET = """
query($path: [String!]!) {
  assetOrError(assetKey: {path: $path}) { ... on Asset { key { path } } }
}
"""
SENSORS = """
{ sensorsOrError(repositorySelector: {repositoryLocationName: "ml_assets",
    repositoryName: "__repository__"}) { ... on Sensors { results { name } } } }
"""

pytestmark = pytest.mark.timeout(600)


def get(url: str, body: dict[str, Any] | None = None) -> str:
    """What is at an address; anything but 200 raises."""
    data = json.dumps(body).encode() if body is not None else None
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        assert answer.status == 200
        return answer.read().decode()


@dataclass(frozen=True)
class Served:
    """The three tools of one state folder."""

    dagster: str
    reports: str
    mlflow: str
    process: int

    def graphql(self, query: str, **variables: object) -> Any:
        body = {"query": query, "variables": variables}
        found = json.loads(get(f"{self.dagster}/graphql", body))
        assert "errors" not in found, found
        return found["data"]

    def check(self, url: str) -> str:
        """Open a link, and hold it to what it names: a one-page program answers 200 to anything."""
        body = get(url)
        where, _, path = url.partition("/#/")
        if run := re.fullmatch(r"runs/([0-9a-f]{32})", path):
            get(f"{where}/api/2.0/mlflow/runs/get?run_id={run[1]}")
        elif model := re.fullmatch(r"models/(\w+)", path):
            get(f"{where}/api/2.0/mlflow/registered-models/get?name={model[1]}")
        elif run := re.fullmatch(re.escape(self.dagster) + "/runs/(.+)", url):
            assert self.graphql(RUN, id=run[1])["runOrError"].get("status"), url
        elif asset := re.fullmatch(re.escape(self.dagster) + "/assets/(.+)", url):
            path = asset[1].split("/")
            assert self.graphql(ASSET, path=path)["assetOrError"]["key"]["path"] == path
        elif url == f"{self.dagster}/automation":
            assert "results" in self.graphql(SENSORS)["sensorsOrError"], "that it shows"
        else:
            assert url.startswith(self.reports), f"nothing says what {url} is"
            assert "<table" in body if url.endswith("/experiments.html") else "<svg" in body
        return body


STRAY = ("dagster", "mlflow", "polars", "sitecustomize", "sqlalchemy", "starlette", "yaml")


def start(world: World, *options: str) -> subprocess.Popen[bytes]:
    """As it is typed, in a folder with modules that came with somebody's data."""
    folder = world.root / "data"
    folder.mkdir(exist_ok=True)
    for name in STRAY:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write({name!r})")
    with (world.root / "ui.log").open("wb") as output:
        return subprocess.Popen(
            [Path(sysconfig.get_path("scripts"), "ml-assets"), "ui", *options],
            env=world.environment,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def wait_for(url: str, server: subprocess.Popen[bytes], world: World) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            get(url)
            return
        except (urllib.error.URLError, OSError):
            said = (world.root / "ui.log").read_text()
            assert server.poll() is None, said
            assert time.monotonic() < end, f"{url} does not answer\n{said}"
            time.sleep(0.5)


def ask(
    server: str, method: str, path: str, headers: dict[str, str], body: str | None = None
) -> tuple[int, str]:
    """The status and the words of an answer, whatever it is."""
    connection = http.client.HTTPConnection(urlsplit(server).netloc, timeout=30)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, "" if answer.status == 101 else answer.read().decode()
    finally:
        connection.close()
