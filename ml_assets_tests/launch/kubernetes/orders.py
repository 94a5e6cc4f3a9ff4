"""Orders for attempts on a cluster: whole specs, read as a team writes them."""

from dataclasses import replace
from typing import Any

from ml_assets.actions.render import job_order
from ml_assets.settings import Cluster
from ml_assets.settings.cluster import Taint
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets_tests.spec.specs import SPEC

SMALL = Cluster(objects="s3://store/prefix", image="registry.example/training@sha256:" + "5" * 64)
WHOLE = Cluster(
    objects="s3://store/prefix",
    image="registry.example:5000/team/training@sha256:" + "a" * 64,
    namespace="team-a",
    secret="store-keys",
    pull_secret="registry-keys",
    spot_selector=(("cloud.example/spot", "true"),),
    spot_taints=(Taint("cloud.example/spot", "true", "NoSchedule"),),
    s3_endpoint="http://store.example:9000",
    s3_region="eu-central-1",
)
SPOT = {"notice_seconds": 120.0, "write_mb_per_second": 1000.0}
MANY = {
    "nodes": 256,
    "gpus_per_node": 8,
    "cpu": 96,
    "memory": "1Ti",
    "shared_memory": "64Gi",
    "scratch": "500Gi",
    "node_selector": {"node.example/gpu": "h200"},
    "tolerations": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
    "priority_class": "training",
    "queue": "team-a",
    "queue_priority": "urgent",
    "spread_over": "topology.kubernetes.io/zone",
    "min_nodes": 128,
    "deadline_hours": 336,
}


def spec_of(cluster: dict[str, Any], **training: object) -> PipelineSpec:
    return PipelineSpec.model_validate(
        {**SPEC, "cluster": cluster, "training": {**SPEC["training"], **training}}
    )


def one_pod_score():
    return job_order(spec_of({}), SMALL, "score"), SMALL


def two_nodes():
    cluster = {"nodes": 2, "cpu": "500m", "memory": "2Gi", "shared_memory": "256Mi"}
    return job_order(spec_of(cluster, processes=4, threads=2), SMALL, "train"), SMALL


def many_nodes():
    spec = spec_of(MANY, processes=2048, strategy="hybrid", spot=SPOT)
    return job_order(spec, WHOLE, "train", attempt=7), WHOLE


def two_nodes_elsewhere():
    order, settings = two_nodes()
    return replace(order, attempt=2, avoid=("node-7", "node-12")), settings
