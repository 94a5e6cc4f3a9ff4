"""A cluster takes the manifests as they are, and each pod finds what they promise it."""

import dataclasses
import json

import pytest

from ml_assets.actions.render import job_order
from ml_assets.launch.kubernetes.manifest import job_manifest, manifests, service_manifest
from ml_assets_tests.launch.kubernetes.orders import (
    SMALL,
    many_nodes,
    one_pod_score,
    spec_of,
    two_nodes,
)
from ml_assets_tests.servers.kubernetes.cluster import TestCluster
from ml_assets_tests.servers.kubernetes.sample_jobs import Namespace, ended

TELL = """
import json, os, sys, tempfile
scratch = dict(zip(sys.argv[1::2], sys.argv[2::2]))["--scratch"]
os.makedirs(os.environ["TMPDIR"], exist_ok=True)
with tempfile.NamedTemporaryFile() as file:
    written = file.name
open("/dev/shm/tensor", "w").close() if os.path.isdir("/dev/shm") else None
print(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ), "written": written}))
"""
"""Stands in for the training program: says what it was given."""


@pytest.mark.parametrize("case", [one_pod_score, two_nodes, many_nodes])
def test_a_cluster_admits_every_golden_manifest(cluster: TestCluster, case) -> None:
    order, settings = case()
    here = Namespace(cluster)
    settings = dataclasses.replace(settings, namespace=here.name)
    # a PriorityClass is the cluster's own to have; everything else has to be right as it is
    order = dataclasses.replace(
        order, cluster=order.cluster.model_copy(update={"priority_class": None})
    )
    for document in manifests(order, settings):
        create = (
            here.core.create_namespaced_service
            if document["kind"] == "Service"
            else here.batch.create_namespaced_job
        )
        kept = create(here.name, document, dry_run="All", field_validation="Strict")
        assert kept.metadata.name == order.name


def test_each_pod_is_told_who_it_is_and_gets_the_keys_of_the_secret(cluster: TestCluster) -> None:
    here = Namespace(cluster)
    here.core.create_namespaced_secret(
        here.name, {"metadata": {"name": "keys"}, "stringData": {"AWS_ACCESS_KEY_ID": "hush"}}
    )
    spec = spec_of(
        {
            "nodes": 2,
            "cpu": "50m",
            "memory": "128Mi",
            "shared_memory": "16Mi",
            "scratch": "64Mi",
        }
    )
    settings = dataclasses.replace(
        SMALL, namespace=here.name, secret="keys", image=cluster.image, s3_region="eu-central-1"
    )
    order = job_order(spec, settings, "train")
    manifest = job_manifest(order, settings)
    manifest["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", "-c", TELL]
    job = here.create(manifest)
    here.core.create_namespaced_service(
        here.name, service_manifest(order, settings, job.metadata.uid)
    )
    done = here.job_where(ended, order.name)
    pods = here.pods(f"ml-assets.io/attempt=1,job-name={order.name}")
    told = [json.loads(here.log(pod.metadata.name)) for pod in pods]
    assert done.status.succeeded == 2, told
    for index, said in enumerate(told):
        given = dict(zip(said["argv"][::2], said["argv"][1::2], strict=True))
        assert given["--request"] == order.request
        assert given["--grace"] == str(order.grace_seconds)
        assert said["env"]["JOB_COMPLETION_INDEX"] == str(index)
        assert said["env"]["AWS_ACCESS_KEY_ID"] == "hush"
        assert said["env"]["AWS_DEFAULT_REGION"] == "eu-central-1"
        assert said["written"].startswith(f"{given['--scratch']}/tmp/")
        assert given["--address"] and "$(" not in given["--address"]
    assert told[0]["argv"] != told[1]["argv"], "each pod has an address of its own"
