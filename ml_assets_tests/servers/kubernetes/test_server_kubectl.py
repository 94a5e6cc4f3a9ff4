"""kubectl, where it is installed, works against the tests' own API server as against any."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ml_assets_tests.servers.kubernetes.cluster import TestCluster
from ml_assets_tests.servers.kubernetes.sample_jobs import job

DEPLOY = Path(__file__).parents[3] / "deploy"
pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")


@pytest.fixture
def kubectl(cluster: TestCluster):
    def run(*arguments, code=0, **options):
        done = subprocess.run(
            ["kubectl", f"--kubeconfig={cluster.kubeconfig}", *arguments],
            capture_output=True,
            text=True,
            check=False,
            **options,
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    return run


def test_a_job_is_applied_waited_for_shown_and_deleted(cluster, kubectl):
    manifest = json.dumps(job(cluster, "print('hello')", pods=2))
    apply = ("apply", "--validate=false", "-f", "-")
    assert kubectl(*apply, input=manifest) == "job.batch/claim created\n"
    kubectl("wait", "--for=condition=complete", "job/claim", "--timeout=60s")

    assert kubectl(*apply, input=manifest) == "job.batch/claim unchanged\n"
    header, row = kubectl("get", "job", "claim").splitlines()
    assert header.split() == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert row.split()[:3] == ["claim", "Complete", "2/2"]
    assert kubectl("get", "pods", "--no-headers").count("Completed") == 2
    assert kubectl("logs", "job/claim") == "hello\n"
    described = kubectl("describe", "job", "claim")
    assert "2 Succeeded / 0 Failed" in described and "Created pod: claim-0-" in described
    name = kubectl("get", "pods", "-o", "jsonpath={.items[0].metadata.name}")
    assert "Started container main" in kubectl("describe", "pod", name)
    assert name in kubectl("get", "events")

    assert kubectl("delete", "job", "claim") == 'job.batch "claim" deleted\n'
    assert kubectl("get", "pods", "-o", "name") == ""


def test_a_refusal_is_told_in_its_words(kubectl):
    told = kubectl("get", "job", "nothing", code=1)
    assert told == 'Error from server (NotFound): jobs.batch "nothing" not found\n'
    told = kubectl("get", "widgets", code=1)
    assert 'the server doesn\'t have a resource type "widgets"' in told


def test_a_field_that_is_spelt_wrong_is_refused_before_anything_is_made(cluster, kubectl):
    manifest = json.dumps(job(cluster, "pass", complections=2))
    told = kubectl("apply", "-f", "-", input=manifest, code=1)
    assert 'strict decoding error: unknown field "spec.complections"' in told
    assert kubectl("get", "jobs", "-o", "name") == ""


@pytest.mark.parametrize("folder", ["base", "dagster", "overlays/dev", "overlays/spot", "kueue"])
def test_what_deploy_holds_is_taken(kubectl, folder):
    apply = ("apply", "-k", str(DEPLOY / folder), "-o", "name")
    made = kubectl(*apply).splitlines()
    assert made and kubectl(*apply).splitlines() == made
