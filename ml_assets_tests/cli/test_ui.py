"""Dagster, MLflow and the reports beside each other: every link between them opens."""

import json
import os
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from ml_assets_tests.cli.served_ui import PATIENCE, Served, ask, get, start, wait_for
from ml_assets_tests.worlds.processes import below
from ml_assets_tests.worlds.world import World, free_ports

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

LOCATIONS = """
{ workspaceOrError { ... on Workspace { locationEntries {
    locationOrLoadError { __typename }
} } } }
"""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def served(released: World) -> Iterator[Served]:
    settings = released.settings
    server = start(released)
    found = Served(settings.ui_url, settings.reports_url, settings.mlflow_url, server.pid)
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


@pytest.mark.usefixtures("served")
def test_nothing_is_imported_from_the_folder_that_it_is_called_in(released: World) -> None:
    assert not (released.root / "data" / "ran").exists()


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


def test_the_first_page_says_what_is_in_production_and_leads_on(served: Served) -> None:
    shown = get(served.reports)
    assert shown.count(" is in production") == 2, "irises and deliveries"
    ways = set(re.findall(r'<nav class="ways">(.*?)</nav>', shown, re.DOTALL))
    links = {url for nav in ways for url in re.findall(r'href="(http[^"]+)"', nav)}
    assert {urlsplit(url).netloc for url in links} == {
        urlsplit(url).netloc for url in (served.dagster, served.reports, served.mlflow)
    }
    for url in links:
        served.check(url)


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
    first = get(served.reports)
    for url in re.findall(r'href="(http[^"]+)"', first):
        served.check(url)
    pages = re.findall(r'href="(/[^"]+)"', first)
    assert {page.split("/")[1] for page in pages} == {"irises", "deliveries"}
    for page in pages:
        links = re.findall(r'href="(http[^"]+)"', served.check(served.reports + page))
        assert len(links) >= (1 if page.endswith("/experiments.html") else 5)
        for url in links:
            served.check(url.replace("&amp;", "&"))


def test_all_of_it_listens_on_this_machine_alone(served: Served) -> None:
    ui = psutil.Process(served.process)
    programs = (ui, *ui.children(recursive=True))
    found = [one for program in programs for one in program.net_connections("inet")]
    listening = {(*one.laddr,) for one in found if one.status == psutil.CONN_LISTEN}
    assert {host for host, _ in listening} == {"127.0.0.1"}
    shown = {urlsplit(url).port for url in (served.dagster, served.reports, served.mlflow)}
    assert shown <= {port for _, port in listening}


def test_mlflow_starts_no_queue_of_jobs(served: Served) -> None:
    assert not below(served.process, "huey")


def test_the_process_that_serves_the_definitions_is_begun_again_when_it_dies(
    served: Served, released: World
) -> None:
    home = f"ML_ASSETS_HOME={released.root / 'state'}".encode()
    (killed,) = (
        process
        for process in below(served.process, "grpc")
        if home in Path(f"/proc/{process.pid}/environ").read_bytes()
    )
    killed.kill()
    until, seen = time.monotonic() + PATIENCE, [""]
    while "PythonError" not in seen or seen[-1] != "RepositoryLocation":
        assert time.monotonic() < until, set(seen)
        time.sleep(0.5)
        answer = json.loads(get(f"{served.dagster}/graphql", {"query": LOCATIONS}))
        (entry,) = answer["data"]["workspaceOrError"]["locationEntries"]
        seen.append(entry["locationOrLoadError"]["__typename"])
    said = (released.root / "ui.log").read_text()
    assert "The process that serves the definitions died; another one is begun." in said


def test_the_log_says_where_each_is_served(served: Served, released: World) -> None:
    said = (released.root / "ui.log").read_text()
    assert f"Dagster: {served.dagster}  (in a few seconds; Ctrl-C stops all)" in said
    assert f"Dagster is ready: {served.dagster}" in said
    assert f"MLflow:  {served.mlflow}" in said
    assert f"Reports: {served.reports}" in said
    assert "DEBUG" not in said


def empty_world(root: Path, **urls: str) -> World:
    ports = dict(zip(("UI", "REPORTS", "MLFLOW"), free_ports(3), strict=True))
    free = {f"ML_ASSETS_{name}_URL": f"http://127.0.0.1:{port}" for name, port in ports.items()}
    world = World(root, {**free, **urls})
    world.pipelines.mkdir()
    return world


@pytest.mark.parametrize("name", ["UI", "MLFLOW", "REPORTS"])
def test_a_port_in_use_is_one_line_before_anything_starts(tmp_path: Path, name: str) -> None:
    setting = f"ML_ASSETS_{name}_URL"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        world = empty_world(tmp_path, **{setting: f"http://127.0.0.1:{port}"})
        said = world.cli("ui", code=1).splitlines()
    (line,) = [line for line in said if line.startswith("error: ")]
    who = f" (by {Path('/proc/self/comm').read_text().strip()}, process {os.getpid()})"
    assert f"cannot be served at 127.0.0.1:{port}: Address already in use{who}." in line
    assert setting in line
    assert line == said[-1]


@pytest.mark.parametrize("command", [("serve", "irises"), ("ops", "api"), ("ui",)])
def test_each_server_says_who_has_its_port_and_which_flag_moves_it(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    world = World(tmp_path, {"ML_ASSETS_API_OPERATORS": f"ada={'0' * 64}"})
    world.pipelines.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = world.streams(*command, "--port", str(port), code=1)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert f"cannot be served at 127.0.0.1:{port}: Address already in use" in line
    assert f"process {os.getpid()})" in line
    assert "--port" in line.rpartition(". End what uses the port")[2]


def test_a_port_moves_all_three_and_passes_one_that_is_taken(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.pipelines.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] - 1
        with start(world, "--port", str(port)) as server:
            log = world.root / "ui.log"
            while "Reports:" not in log.read_text():
                assert server.poll() is None, log.read_text()
                time.sleep(0.1)
            said = dict(re.findall(r"(\w+): +(http://127.0.0.1:\d+)", log.read_text()))
            assert said["Dagster"] == f"http://127.0.0.1:{port}"
            ports = [urlsplit(said[name]).port or 0 for name in ("Dagster", "Reports", "MLflow")]
            assert ports == sorted({*ports} - {port + 1})
            wait_for(said["Reports"], server, world)
            told = log.read_text()
            assert "pages of earlier runs lead to the earlier ports" in told
            for name, setting in (("Dagster", "UI"), ("Reports", "REPORTS"), ("MLflow", "MLFLOW")):
                assert f"ML_ASSETS_{setting}_URL={said[name]}" in told
            wait_for(f"{said['MLflow']}/health", server, world)
            wait_for(f"{said['Dagster']}/server_info", server, world)
            server.send_signal(signal.SIGTERM)
            assert server.wait(PATIENCE) == 0, log.read_text()


def test_a_sigterm_that_comes_while_they_start_ends_it(tmp_path: Path) -> None:
    world = empty_world(tmp_path)
    with start(world) as server:
        log = world.root / "ui.log"
        while "Reports:" not in log.read_text():
            assert server.poll() is None
            time.sleep(0.02)
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0, log.read_text()
    assert "Traceback" not in log.read_text()


MUTATION = "mutation { setNuxSeen }"
ADDRESS = "/graphql?query=mutation%7BsetNuxSeen%7D"
JSON = {"Content-Type": "application/json"}
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
FOREIGN = {"Origin": "https://evil.example"}
REBOUND = {"Host": "evil.example"}


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        (JSON | FOREIGN, "https://evil.example"),
        (JSON | {"Origin": "null"}, "'null'"),
        (JSON | {"Sec-Fetch-Site": "cross-site"}, "another site (Sec-Fetch-Site: cross-site)"),
        (JSON | {"Sec-Fetch-Site": "same-site"}, "another site (Sec-Fetch-Site: same-site)"),
        (JSON | REBOUND, "Invalid host header"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "its Content-Type is"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, "its Content-Type is"),
        ({"Content-Type": "text/plain; application/json"}, "its Content-Type is 'text/plain'"),
        ({}, "its Content-Type is ''"),
    ],
)
def test_dagster_is_changed_by_its_own_pages_only(
    served: Served, headers: dict[str, str], why: str
) -> None:
    body = json.dumps({"query": MUTATION})
    status, said = ask(served.dagster, "POST", "/graphql", headers, body)
    assert status in (400, 403)
    assert why in said
    assert len(said.splitlines()) == 1


def test_dagster_is_changed_by_its_own_page_and_by_a_program(served: Served) -> None:
    body = json.dumps({"query": MUTATION})
    own = {"Origin": served.dagster, "Sec-Fetch-Site": "same-origin"}
    for headers in (JSON, JSON | own):
        status, said = ask(served.dagster, "POST", "/graphql?op=SetNuxSeen", headers, body)
        assert (status, json.loads(said)) == (200, {"data": {"setNuxSeen": True}})


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_address_carries_no_mutation(served: Served, method: str) -> None:
    status, said = ask(served.dagster, method, ADDRESS, {})
    assert (status, len(said.splitlines())) == (403, 1)
    assert "not in an address" in said


def test_a_websocket_is_opened_by_our_own_page_only(served: Served) -> None:
    own = HANDSHAKE | {"Origin": served.dagster}
    assert ask(served.dagster, "GET", "/graphql", own)[0] == 101
    status, said = ask(served.dagster, "GET", "/graphql", HANDSHAKE | FOREIGN)
    assert status == 403
    assert "https://evil.example" in said
    assert ask(served.dagster, "GET", "/graphql", own | REBOUND)[0] == 400


def test_another_site_may_link_here_but_load_and_frame_nothing(served: Served) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    for server in (served.dagster, served.reports):
        assert ask(server, "GET", "/", link | {"Sec-Fetch-Dest": "document"})[0] == 200
        assert ask(server, "GET", "/", link | {"Sec-Fetch-Dest": "iframe"})[0] == 403
        picture = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        assert ask(server, "GET", "/", picture | {"Sec-Fetch-Dest": "image"})[0] == 403
        assert urllib.request.urlopen(server, timeout=30).headers["X-Frame-Options"]


def test_the_reports_and_mlflow_refuse_a_name_that_is_not_theirs(served: Served) -> None:
    experiments = "/api/2.0/mlflow/experiments/search?max_results=1"
    assert ask(served.mlflow, "GET", experiments, {})[0] == 200
    for server, path in ((served.reports, "/"), (served.mlflow, experiments)):
        for name in ("evil.example", "10.0.0.4", "evil.example:3002"):
            status, said = ask(server, "GET", path, {"Host": name})
            assert (status, len(said.splitlines())) == (403, 1), name


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (JSON | FOREIGN, 403),
        (JSON | {"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 400),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 400),
        (JSON, 200),
    ],
)
def test_mlflow_is_changed_by_its_own_pages_only(
    served: Served, headers: dict[str, str], status: int
) -> None:
    path = "/api/2.0/mlflow/experiments/create"
    body = json.dumps({"name": f"made by {headers}"})
    assert ask(served.mlflow, "POST", path, headers, body)[0] == status


def test_the_reports_take_no_request_that_could_change_them(served: Served) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert ask(served.reports, method, "/", {})[0] == 501
