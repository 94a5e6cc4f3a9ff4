"""The whole walk of a small pipeline where training, scores and examinations are Jobs."""

import json
import shutil
from pathlib import Path

import pytest

from ml_assets_tests.launch.kubernetes.server import ApiServer
from ml_assets_tests.storage.s3_rights import PODS, rights_of_pods, secret_of_pods
from ml_assets_tests.storage.s3_server import BUCKET, SECRET, S3Server, s3_server
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]  # a walk, each program in a pod


def world_on(store: S3Server, server: ApiServer, folder: Path) -> World:
    """A home whose programs run in pods."""
    store.rights[PODS] = rights_of_pods(f"{BUCKET}/state")
    data = secret_of_pods(SECRET)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ml-assets-training"}}
    server.apply({**secret, "data": data})
    world = World(
        folder,
        {
            "ML_ASSETS_LAUNCHER": "kubernetes",
            "ML_ASSETS_OBJECTS": f"s3://{BUCKET}/state",
            "ML_ASSETS_TRAINING_IMAGE": "registry.example/training@sha256:" + "5" * 64,
            "KUBECONFIG": str(server.write_kubeconfig(folder / "kubeconfig")),
            "AWS_ENDPOINT_URL": store.endpoint,
        },
    )
    irises.plant(world.pipelines, world.sources)
    return world


def test_a_pipeline_is_released_from_a_cluster_and_nothing_is_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(monkeypatch) as store, ApiServer() as server:
        world = world_on(store, server, tmp_path)
        world.cli("run", "irises")
        status = world.status("irises")
        assert status["release"]["decision"] == "passed"
        cleared = server.calls.of("delete", "jobs")
        assert {call.name.split("-")[1] for call in cleared} == {"sanity", "train", "score"}
        assert server.pods() == []
        assert SECRET not in json.dumps(status)
        calls = len(server.calls)
        again = world.cli("run", "irises")
        assert "skip  irises/trained_model" in again and "make  " not in again
        assert len(server.calls) == calls, "what is finished asks no cluster"
        assert server.failures == []


@pytest.mark.timeout(1800)  # a walk, and what follows it
def test_a_release_predicts_and_is_measured_in_pods_and_is_exported_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(monkeypatch) as store, ApiServer() as server:
        world = world_on(store, server, tmp_path)
        world.cli("run", "irises")
        shutil.rmtree(tmp_path / "state" / "objects")  # the disk of its pod was ephemeral
        world.cli("export", "irises", "--to", str(tmp_path / "card"))
        world.cli("verify", str(tmp_path / "card"))
        before = len(server.calls.of("delete", "jobs"))
        flowers = (world.sources / "irises.csv").read_text().splitlines()[:4]
        (tmp_path / "three.csv").write_text("\n".join(flowers) + "\n")
        assert "prediction" in world.cli("predict", "irises", str(tmp_path / "three.csv"))
        world.cli("tune-batch", "irises", "--batch", "24", "--processes", "1")
        cleared = server.calls.of("delete", "jobs")[before:]
        verbs = [call.name.split("-")[1] for call in cleared]
        assert list(dict.fromkeys(verbs)) == ["score", "measure"]
        assert server.pods() == []
        assert [key for key in store.everything() if "/scratch/" in key] == []
        assert server.failures == []
