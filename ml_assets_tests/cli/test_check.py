"""`ml-assets check` asks the cluster of the settings whether one could train there."""

from pathlib import Path

import pytest

from ml_assets.launch.kubernetes.rights import NEEDED
from ml_assets_tests.launch.kubernetes.server import ApiServer
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World


@pytest.fixture
def check(tmp_path: Path):
    """What it prints, for a kubeconfig."""

    def check(kubeconfig: Path, *, code: int) -> str:
        settings = {
            "ML_ASSETS_LAUNCHER": "kubernetes",
            "ML_ASSETS_OBJECTS": "s3://bucket/state",
            "ML_ASSETS_TRAINING_IMAGE": "registry.example/training@sha256:" + "5" * 64,
            "KUBECONFIG": str(kubeconfig),
        }
        world = World(tmp_path, settings)
        if not world.pipelines.exists():
            irises.plant(world.pipelines, world.sources)
        return world.cli("check", "irises", code=code)

    return check


def test_a_cluster_that_would_refuse_a_training_is_told_before_there_is_one(check, tmp_path):
    assert "cluster: There is no Kubernetes configuration at" in check(tmp_path / "none", code=1)
    with ApiServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        assert "cluster" not in check(kubeconfig, code=0)
        reader = server.access.token("reader", rules=[])
        server.write_kubeconfig(tmp_path / "kubeconfig", token=reader)
        told = check(kubeconfig, code=1)
        assert all(str(right) in told for right in NEEDED)
        assert {call.verb for call in server.calls} == {"create"}
        assert {call.resource for call in server.calls} == {"selfsubjectaccessreviews"}
