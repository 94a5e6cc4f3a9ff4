"""`make test-cluster` holds the cluster that KUBECONFIG names to the claims: here, our own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ml_assets_tests.servers.kubernetes.resources import NAMESPACES
from ml_assets_tests.servers.kubernetes.sample_jobs import until

REPOSITORY = Path(__file__).parents[3]


def make_test_cluster(**environment):
    """As it stands in the Makefile, with the Python that we are."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    few = "ARGS=-p no:cacheprovider -k 'dry_run or name_that_is_taken or created_once'"
    venv = ["VENV=none", "--old-file=none/.installed-test", f"BIN={Path(sys.executable).parent}"]
    return subprocess.run(
        ["make", "test-cluster", *venv, few],
        cwd=REPOSITORY,
        env={**kept, **environment},
        capture_output=True,
        text=True,
    )


def test_without_a_cluster_it_says_what_to_set():
    done = make_test_cluster()
    assert done.returncode != 0
    assert "KUBECONFIG: names no cluster" in done.stderr


@pytest.mark.daemon
def test_it_runs_in_namespaces_of_its_own_which_it_leaves_to_go(cluster):
    server = cluster.server
    before = len(server.store.all(NAMESPACES))
    done = make_test_cluster(KUBECONFIG=str(cluster.kubeconfig))
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    made = [call for call in server.calls.of("create", "namespaces") if call.code == 201]
    assert len(made) == 3
    until(lambda: len(server.store.all(NAMESPACES)) == before)
