"""ml-assets ops render: the objects of a cluster, printed on a machine that knows none."""

import json
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from ml_assets.settings import DEMO_PIPELINES
from ml_assets_tests.conftest import Cli

IMAGE = "registry.example/training@sha256:" + "a" * 64


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline of four processes on two nodes, and no state."""
    folder = tmp_path / "pipelines" / "flights_far"
    folder.mkdir(parents=True)
    raw = yaml.safe_load((DEMO_PIPELINES / "flight_delays" / "defs.yaml").read_text())
    raw["attributes"]["name"] = folder.name
    raw["attributes"]["training"]["processes"] = 4
    raw["attributes"]["cluster"] = {"nodes": 2, "memory": "8Gi"}
    (folder / "defs.yaml").write_text(yaml.safe_dump(raw))
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ML_ASSETS_PIPELINES", str(tmp_path / "pipelines"))
    monkeypatch.setenv("ML_ASSETS_OBJECTS", "s3://store/prefix")
    monkeypatch.setenv("ML_ASSETS_TRAINING_IMAGE", IMAGE)
    monkeypatch.setenv("KUBECONFIG", "/nowhere/at/all")
    return tmp_path


def test_a_training_is_printed_as_documents_that_kubectl_reads(laptop: Path, cli: Cli) -> None:
    said = cli("ops", "render", "flights_far")
    assert said.err == ""
    name = "flights-far-train-00000000000000000000-a1"
    assert said.out.splitlines()[0] == (
        f"# flights_far: attempt 1 to train would create Service {name} and Job {name} in namespace"
        " ml-assets: 2 pods of 2 processes."
    )
    service, job = yaml.safe_load_all(said.out)
    for document in (service, job):
        kubernetes_validate.validate(document, "1.34", strict=True)
    assert job["spec"]["completions"] == 2
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE
    assert not (laptop / "state").exists(), "nothing is stored"


def test_json_is_one_list(laptop: Path, cli: Cli) -> None:
    printed = json.loads(cli("ops", "render", "flights_far", "--json", "--attempt", "3").out)
    assert [item["kind"] for item in printed["items"]] == ["Service", "Job"]
    assert printed["kind"] == "List"
    assert printed["items"][1]["metadata"]["labels"]["ml-assets.io/attempt"] == "3"


@pytest.mark.parametrize("verb", ["score", "sanity"])
def test_other_work_is_one_pod(laptop: Path, cli: Cli, verb: str) -> None:
    (job,) = yaml.safe_load_all(cli("ops", "render", "flights_far", "--verb", verb).out)
    assert (job["kind"], job["spec"]["completions"]) == ("Job", 1)


def test_fewer_nodes_keep_their_processes(laptop: Path, cli: Cli) -> None:
    assert "a pod of 2 processes" in cli("ops", "render", "flights_far", "--nodes", "1").out
    said = cli("ops", "render", "flights_far", "--nodes", "3", code=1).err
    assert "1 to 2, cluster.nodes of the spec" in said


def test_what_is_not_set_is_named(laptop: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ML_ASSETS_TRAINING_IMAGE")
    monkeypatch.delenv("ML_ASSETS_OBJECTS")
    told = cli("ops", "render", "flights_far", code=1)
    assert "ML_ASSETS_TRAINING_IMAGE" in told.err
    assert "ML_ASSETS_OBJECTS" in told.err
    assert told.out == ""


def test_neither_torch_nor_a_client_of_kubernetes_is_loaded(laptop: Path) -> None:
    program = (
        "import sys; from ml_assets.cli.main import main; main(['ops', 'render', 'flights_far']);"
        "sys.exit(str(sorted({'torch', 'kubernetes', 'dagster'} & sys.modules.keys())))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"
