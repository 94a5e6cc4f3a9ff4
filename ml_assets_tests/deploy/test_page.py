"""docs/cluster.md is followed: its commands, as they stand, against the tests' API server.

What stands for something of the reader's (``...``) is filled in; what installs, lays out the demo
or trains is left to the tests of those.
"""

import base64
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ml_assets.store.signing import Keys
from ml_assets_tests.deploy import rules
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.kubernetes.cluster import TestCluster, cluster
from ml_assets_tests.servers.kubernetes.resources import SECRETS, of_kind

__all__ = ["cluster"]  # the fixture

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "cluster.md").read_text()
ELSEWHERE = (
    "pip install",
    "ml-assets demo",
    "ml-assets run",
    "ml-assets status",
    "ml-assets ops logs",
)
ELSEWHERE += ("helm repo", "helm upgrade")
DIGEST = "sha256:" + "1f" * 32


def shell(heading: str) -> list[str]:
    """The lines of shell below a heading, up to the next one."""
    here, found, inside = "", list[str](), False
    for line in PAGE.splitlines():
        if line.startswith("```"):
            inside = line == "```sh"
        elif not inside and line.startswith("#"):
            here = line.lstrip("# ")
        elif inside and here == heading:
            found.append(line)
    return found


def commands(heading: str) -> str:
    """The same, filled in."""
    lines = "\n".join(shell(heading)).replace("\\\n", " ").splitlines()
    kept = [one for one in lines if not any(words in one for words in ELSEWHERE)]
    filled = "\n".join(kept).replace("sha256:...", DIGEST)
    return re.sub(r"=\.\.\.", "=http://127.0.0.1:1", filled).replace(".venv/bin/", "")


def followed(heading: str, server: ApiServer, folder: Path, where: Path = PROJECT) -> str:
    """What the commands print; each has to end well."""
    for needed in ("kubectl", "openssl"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    programs = folder / "bin"
    programs.mkdir()
    program = programs / "ml-assets"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ml_assets.cli.main "$@"\n')
    program.chmod(0o755)
    environment = {name: v for name, v in os.environ.items() if not name.startswith("ML_ASSETS")}
    environment |= {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "KUBECONFIG": str(server.write_kubeconfig(folder / "kubeconfig")),
        "ML_ASSETS_HOME": str(folder / "home"),
        "PYTHONPATH": str(PROJECT),
    }
    done = subprocess.run(
        ["sh", "-euc", commands(heading)],
        env=environment,
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_way_from_a_laptop_works_as_it_is_written(cluster: TestCluster, tmp_path: Path) -> None:
    said = followed("Train on a cluster from a laptop", cluster.server, tmp_path)
    (secret,) = cluster.server.store.all(SECRETS, "ml-assets")
    assert secret["metadata"]["name"] == "ml-assets-training"
    assert set(secret["data"]) == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    rendered = said[said.index("apiVersion") :]
    (job,) = [one for one in yaml.safe_load_all(rendered) if one and one["kind"] == "Job"]
    assert job["spec"]["template"]["spec"]["containers"][0]["envFrom"] == [
        {"secretRef": {"name": "ml-assets-training"}}
    ]


def data(cluster: TestCluster, secret: str, key: str) -> str:
    """What a Secret holds."""
    secrets = cluster.server.store.all(SECRETS, "ml-assets")
    (found,) = [one for one in secrets if one["metadata"]["name"] == secret]
    return base64.b64decode(found["data"][key]).decode()


def public_key(secret: str) -> str:
    return Keys.of(secret).public


def test_the_base_and_the_secrets_are_made_as_it_is_written(
    cluster: TestCluster, tmp_path: Path
) -> None:
    followed("Secrets", cluster.server, tmp_path)
    made = {one["metadata"]["name"] for one in cluster.server.store.all(SECRETS, "ml-assets")}
    assert made == rules.SECRETS
    assert data(cluster, "ml-assets-reports", "ML_ASSETS_TRUSTED_KEYS") == public_key(
        data(cluster, "ml-assets-orchestrator", "ML_ASSETS_SIGNING_KEY")
    )
    kind = of_kind("networking.k8s.io/v1", "NetworkPolicy")
    assert kind is not None
    policies = cluster.server.store.all(kind, "ml-assets")
    assert "default-deny" in {one["metadata"]["name"] for one in policies}


@pytest.mark.parametrize(
    ("heading", "ours"),
    [
        ("With Kustomize", {"orchestrator", "training"}),
        ("With the Helm chart", {"orchestrator", "training"}),
    ],
)
def test_dagster_is_brought_to_the_cluster_as_it_is_written(
    heading: str, ours: set[str], cluster: TestCluster, tmp_path: Path
) -> None:
    """But for the chart itself; the digests that are asked for reach what runs."""
    shutil.copytree(PROJECT / "deploy", tmp_path / "deploy")
    followed(heading, cluster.server, tmp_path, tmp_path)
    kinds = ("apps/v1", "Deployment"), ("v1", "PodTemplate")
    found = [
        one
        for kind in filter(None, (of_kind(*names) for names in kinds))
        for one in cluster.server.store.all(kind, "ml-assets")
    ]
    images = {container["image"] for _, container in rules.containers(found)}
    by_digest = {image for image in images if image.endswith(f"@{DIGEST}")}
    assert {image.split("/")[-1].split("@")[0] for image in by_digest} == ours
    services = of_kind("v1", "Service")
    assert services is not None
    made = {one["metadata"]["name"] for one in cluster.server.store.all(services, "ml-assets")}
    assert {"dagster-readers-ui", "dagster-operators-ui"} <= made


def test_every_variable_on_the_page_is_one_that_is_read() -> None:
    """In the table of docs/operate.md, or in the settings and Secrets of deploy/."""
    table = (PROJECT / "docs" / "operate.md").read_text()
    named = set(re.findall(r"\b(?:ML_ASSETS|LAKEFS|DAGSTER|MLFLOW)_[A-Z_]+\b", PAGE))
    ours = "".join(file.read_text() for file in (PROJECT / "deploy").rglob("*.yaml"))
    known = [name for name in named if name in table or name in ours or "_TEST_" in name]
    assert sorted(named - {*known}) == []
