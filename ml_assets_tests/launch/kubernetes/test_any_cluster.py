"""`make test-cluster` holds the cluster that KUBECONFIG names to the claims: here, our own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ml_assets_tests.servers.kubernetes.cluster import KUBECONFIG
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


FAILS = """
import pytest
from kubernetes.client import BatchV1Api, CoreV1Api
from ml_assets_tests.servers.kubernetes.sample_jobs import job

pytest_plugins = ["ml_assets_tests.servers.kubernetes.cluster"]


def test_that_fails(cluster):
    held = {"metadata": {"name": "held", "finalizers": ["test/held"]}}
    core, batch = CoreV1Api(cluster.client()), BatchV1Api(cluster.client())
    core.create_namespaced_service(cluster.namespace, held | {"spec": {"ports": [{"port": 80}]}})
    core.create_namespaced_secret(cluster.namespace, held)
    core.create_namespaced_config_map(cluster.namespace, held)
    batch.create_namespaced_job(cluster.namespace, job(cluster, "pass") | held)
    batch.delete_namespaced_job("held", cluster.namespace)
    raise AssertionError("whatever happens")
"""


@pytest.mark.daemon
def test_what_a_failing_test_holds_keeps_no_namespace(cluster, tmp_path):
    server = cluster.server
    before = len(server.store.all(NAMESPACES))
    (tmp_path / "test_fails.py").write_text(FAILS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=REPOSITORY,
        env={**os.environ, KUBECONFIG: str(cluster.kubeconfig)},
        capture_output=True,
        text=True,
    )
    assert "1 failed" in done.stdout and "AssertionError: whatever happens" in done.stdout
    assert " error" not in done.stdout, done.stdout
    assert len([c for c in server.calls.of("create", "namespaces") if c.code == 201]) == 1
    until(lambda: len(server.store.all(NAMESPACES)) == before)
