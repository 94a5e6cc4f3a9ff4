"""docs/cluster.md is followed: its commands, as they stand, against the tests' API server.

What stands for something of the reader's (``...``) is filled in, and what installs, lays out the
demo or trains is left to the tests of those. kubectl is told not to fetch the server's OpenAPI,
which the tests' server does not serve.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ml_assets_tests.launch.kubernetes.conftest import TestCluster, cluster
from ml_assets_tests.launch.kubernetes.server.resources import SECRETS

__all__ = ["cluster"]  # the fixture

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "cluster.md").read_text()
ELSEWHERE = ("pip install", "ml-assets demo", "ml-assets run", "ml-assets status", "ml-assets logs")
SHIM = """#!/bin/sh
case "$1" in apply) exec {kubectl} "$@" --validate=false ;; *) exec {kubectl} "$@" ;; esac
"""


def commands(section: str) -> str:
    """The shell text of a section, filled in."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    kept = [line for line in lines if not any(words in line for words in ELSEWHERE)]
    filled = "\n".join(kept).replace("sha256:...", "sha256:" + "0" * 64)
    return re.sub(r"=\.\.\.", "=http://127.0.0.1:1", filled)


def test_the_way_from_a_laptop_works_as_it_is_written(cluster: TestCluster, tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    server = cluster.server
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").write_text(SHIM.format(kubectl=kubectl))
    (programs / "ml-assets").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m ml_assets.cli.main "$@"\n'
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    environment = {name: v for name, v in os.environ.items() if not name.startswith("ML_ASSETS")}
    done = subprocess.run(
        ["sh", "-euc", commands("Train on a cluster from a laptop").replace(".venv/bin/", "")],
        env=environment
        | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(cluster.kubeconfig),
            "ML_ASSETS_HOME": str(tmp_path / "home"),
            "PYTHONPATH": str(PROJECT),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (secret,) = server.store.all(SECRETS, "ml-assets")
    assert secret["metadata"]["name"] == "ml-assets-training"
    assert set(secret["data"]) == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    shown = done.stdout[done.stdout.index("apiVersion") :].split("No resources")[0]
    (job,) = [one for one in yaml.safe_load_all(shown) if one and one["kind"] == "Job"]
    assert job["spec"]["template"]["spec"]["containers"][0]["envFrom"] == [
        {"secretRef": {"name": "ml-assets-training"}}
    ]


def test_every_variable_on_the_page_is_one_that_is_read() -> None:
    """In the table of docs/operate.md, in the overlays' settings, or AWS's and Kubernetes' own."""
    table = (PROJECT / "docs" / "operate.md").read_text()
    named = set(re.findall(r"\b(?:ML_ASSETS|LAKEFS|DAGSTER|MLFLOW)_[A-Z_]+\b", PAGE))
    ours = "".join(f.read_text() for f in (PROJECT / "deploy").rglob("*.yaml"))
    assert [name for name in sorted(named) if name not in table and name not in ours] == []
