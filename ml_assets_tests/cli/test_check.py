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


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{nope", "cannot be read as JSON: line 1: Expecting property name"),
        ("{}".encode("utf-16"), "is not an expectation suite"),
        (b"[" * 200_000, "it is nested more than 100 deep"),
        (b"\xff\xff{}", "it is no UTF-8 text"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_contract_that_cannot_be_read_is_one_mistake_and_no_stack(tmp_path, content, said):
    world = World(tmp_path)
    irises.plant(world.pipelines, world.sources)
    contract = world.pipelines / "irises" / "flowers.json"
    contract.unlink() if content is None else contract.write_bytes(content)
    checked = world.cli("check", "irises", code=1)
    assert said in checked
    assert "Traceback" not in checked


def test_a_run_without_its_contract_ends_in_a_sentence(tmp_path):
    world = World(tmp_path)
    irises.plant(world.pipelines, world.sources)
    (world.pipelines / "irises" / "flowers.json").unlink()
    done = world.streams("run", "irises", "--through", "raw_snapshot", code=1)
    assert done.stderr.startswith("error: The contract ")
    assert "Traceback" not in done.stderr


def test_as_of_is_held_to_the_partitions_before_anything_is_made(tmp_path):
    world = World(tmp_path)
    irises.plant(world.pipelines, world.sources)
    asked = ("run", "irises", "--as-of", "nonsense", "--through", "feature_set")
    done = world.streams(*asked, code=1)
    assert done.stderr.startswith("error: irises is not split by partitions: --as-of 'nonsense'")
    assert ">" not in done.stdout  # no step began
