"""The whole walk of a small pipeline where training, scores and examinations are Jobs."""

import base64
import json
import os
from pathlib import Path

import pytest

from ml_assets_tests.launch.kubernetes.server import ApiServer
from ml_assets_tests.storage.s3_server import BUCKET, SECRET, s3_server
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]  # a walk, each program in a pod


def test_a_pipeline_is_released_from_a_cluster_and_nothing_is_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(monkeypatch) as store, ApiServer() as server:
        keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        data = {key: base64.b64encode(os.environ[key].encode()).decode() for key in keys}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ml-assets-training"}}
        server.apply({**secret, "data": data})
        world = World(
            tmp_path,
            {
                "ML_ASSETS_LAUNCHER": "kubernetes",
                "ML_ASSETS_OBJECTS": f"s3://{BUCKET}/state",
                "ML_ASSETS_TRAINING_IMAGE": "registry.example/training@sha256:" + "5" * 64,
                "KUBECONFIG": str(server.write_kubeconfig(tmp_path / "kubeconfig")),
                "AWS_ENDPOINT_URL": store.endpoint,
            },
        )
        irises.plant(world.pipelines, world.sources)
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
