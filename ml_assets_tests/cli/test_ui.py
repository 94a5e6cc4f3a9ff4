"""Dagster, MLflow and the reports beside each other: every link between them opens."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ml_assets_tests.worlds.world import World

PATIENCE = 180
"""Seconds: a busy machine starts three servers slowly."""
ASSETS = """
fragment entries on MaterializationEvent {
  metadataEntries { label ... on UrlMetadataEntry { url } }
}
{ assetNodes {
    assetKey { path }
    assetMaterializations(limit: 1) { ...entries }
    assetChecksOrError { ... on AssetChecks { checks {
      executionForLatestMaterialization { evaluation {
        metadataEntries { label ... on UrlMetadataEntry { url } }
      } }
    } } }
} }
"""
RUN = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
ASSET = """
query($path: [String!]!) {
  assetOrError(assetKey: {path: $path}) { ... on Asset { key { path } } }
}
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
        else:
            assert url.startswith(self.reports), f"nothing says what {url} is"
            assert "<table" in body if url.endswith("/experiments.html") else "<svg" in body
        return body


def start(world: World) -> subprocess.Popen[bytes]:
    with (world.root / "ui.log").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "ml_assets.cli.main", "ui"],
            env=world.environment,
            cwd=world.root,
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


@pytest.fixture(scope="module")
def served(released: World) -> Iterator[Served]:
    settings = released.settings
    found = Served(settings.ui_url, settings.reports_url, settings.mlflow_url)
    server = start(released)
    try:
        for url in (found.reports, f"{found.mlflow}/health", f"{found.dagster}/server_info"):
            wait_for(url, server, released)
        yield found
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        for url in (found.reports, f"{found.mlflow}/health", f"{found.dagster}/server_info"):
            with pytest.raises(urllib.error.URLError, match="refused"):
                get(url)
    finally:
        server.kill()
        server.wait()


def test_every_link_of_an_asset_page_opens(served: Served) -> None:
    links: dict[str, set[str]] = {}
    for node in served.graphql(ASSETS)["assetNodes"]:
        checks = node["assetChecksOrError"].get("checks", [])
        executions = [check["executionForLatestMaterialization"] for check in checks]
        evaluations = [one["evaluation"] for one in executions if one and one["evaluation"]]
        stage = node["assetKey"]["path"][1]
        for event in [*node["assetMaterializations"], *evaluations]:
            for entry in event["metadataEntries"]:
                if "url" in entry:
                    links.setdefault(stage, set()).add(entry["label"])
                    served.check(entry["url"])
    data = ("validated_table", "derived_table", "feature_set", "training_set")
    assert links == {stage: {"card"} for stage in data} | {
        "checkpoints": {"mlflow_run"},
        "trained_model": {"mlflow_run"},
        "evaluation_report": {"report", "experiments", "mlflow_run"},
        "released_model": {"report", "mlflow_run", "mlflow_model"},
    }


@pytest.mark.parametrize("pipeline", ["irises", "deliveries"])
def test_every_link_of_an_mlflow_run_opens(served: Served, pipeline: str) -> None:
    found = json.loads(
        get(f"{served.mlflow}/api/2.0/mlflow/experiments/get-by-name?experiment_name={pipeline}")
    )
    asked = {"experiment_ids": [found["experiment"]["experiment_id"]]}
    (run,) = json.loads(get(f"{served.mlflow}/api/2.0/mlflow/runs/search", asked))["runs"]
    tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
    note = re.findall(r"\[([\w ]+)\]\((http[^)]+)\)", tags["mlflow.note.content"])
    assert [says for says, _ in note] == ["Dagster run", "lineage", "evaluation report"]
    assert [tags["dagster.run"], tags["ml_assets.report"]] == [note[0][1], note[2][1]]
    for _, url in note:
        served.check(url)


def test_every_link_of_a_report_opens(served: Served) -> None:
    pages = re.findall(r'href="(/[^"]+)"', get(served.reports))
    assert {page.split("/")[1] for page in pages} == {"irises", "deliveries"}
    for page in pages:
        links = re.findall(r'href="(http[^"]+)"', served.check(served.reports + page))
        assert len(links) >= (1 if page.endswith("/experiments.html") else 5)
        for url in links:
            served.check(url.replace("&amp;", "&"))


def test_the_log_says_where_each_is_served(served: Served, released: World) -> None:
    said = (released.root / "ui.log").read_text()
    assert f"Dagster: {served.dagster}  (Ctrl-C stops all)" in said
    assert f"MLflow:  {served.mlflow}" in said
    assert f"Reports: {served.reports}" in said


def test_a_port_that_is_taken_is_an_error_that_names_the_setting(
    served: Served, released: World
) -> None:
    assert "ML_ASSETS_REPORTS_URL" in released.cli("ui", code=1)
