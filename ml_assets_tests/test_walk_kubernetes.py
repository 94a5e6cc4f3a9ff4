"""The whole walk of a small pipeline where training, scores and examinations are Jobs."""

import json
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from ml_assets.graph.inputs import require_record
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.names import selector_of
from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.records.load_release import provenance_in_force
from ml_assets.records.run_record import RunRecord
from ml_assets.spec.records import StageRecord
from ml_assets.spec.training_program import ModelManifest, Ref
from ml_assets.spec.training_program.identity import machine_here, program_here
from ml_assets.store.pipeline_context import PipelineState, open_pipeline
from ml_assets_tests.launch.kubernetes.stage import weights
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.s3 import BUCKET, SECRET, S3Server, s3_server
from ml_assets_tests.worlds.flight_pods import begin
from ml_assets_tests.worlds.iris_pods import IMAGE, between_two_saves, over_two_pods, world_on
from ml_assets_tests.worlds.world import World

pytestmark = pytest.mark.timeout(900)  # a walk, each program in a pod


def kill_a_pod_in_training(server: ApiServer, store: S3Server, kubeconfig: str) -> str:
    """As a machine goes, between two checkpoints: no notice, no grace. The name of the pod."""
    with between_two_saves(store):
        second = "batch.kubernetes.io/job-completion-index=1"
        api = KubernetesApi(server.namespace, environment={"KUBECONFIG": kubeconfig})
        (pod,) = api.pods(f"{selector_of()},{second}")
        api.delete_pod(pod.name)
    return pod.name


def trained_here(world: World, data: StageRecord, folder: Path) -> str:
    """SHA-256 of the weights that two processes of this machine train on the same set."""
    place = open_pipeline("irises", world.settings)
    where = Ref(uri=data.attributes["uri"], digest=data.attributes["digest"])
    set_here = place.objects.own(where, "shards", "irises")
    job = TrainJob("irises", place.spec.model, place.spec.training, set_here)
    result = LocalLauncher(folder).train(job, lambda event: None)
    return weights(result)


def another_image(server: ApiServer, folder: Path) -> str:
    """An image whose torch is another build, on nodes of a type of their own; that torch."""
    build = f"{version('torch').partition('+')[0]}+pods"
    described = folder / f"torch-{build}.dist-info" / "METADATA"
    described.parent.mkdir(parents=True)
    described.write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {build}\n")
    server.images.packages[IMAGE] = folder
    server.remove_node("node-1")
    server.add_node("node-2", labels={"node.kubernetes.io/instance-type": "m7.large"})
    return build


def tells_of_the_pods(world: World, now: PipelineState, torch: str) -> RunRecord:
    """What trained it is in the run record, the certificate and MLflow's tags, as pods told it."""
    file = now.address("trained_model").file("run.json")
    record = RunRecord.model_validate_json(now.read_bytes(file))
    for index, node in enumerate(record.nodes):
        assert node.place is not None and node.place.index == index
        assert (node.place.image, node.place.node_type) == (IMAGE, "m7.large")
        assert (node.program, node.versions["torch"]) == (program_here("network"), torch)
        assert node.machine.devices == machine_here().devices
    assert len(record.nodes) == 2
    model = require_record(now, now.address("trained_model")).data_version
    made = provenance_in_force(now.pipeline.store, "irises", model)
    assert made is not None and (made.nodes, made.program) == (record.nodes, record.program)
    client = MlflowClient(world.settings.tracking_uri)
    experiment = client.get_experiment_by_name("irises")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    said = {
        "code.program": program_here("network").digest,
        "env.image": IMAGE,
        "env.node_type": "m7.large",
        "env.torch": torch,
        "env.gpus": "none",
    }
    assert said.items() <= run.data.tags.items()
    return record


def test_a_walk_whose_pod_is_killed_releases_the_weights_that_two_local_processes_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(monkeypatch) as store, ApiServer() as server:
        world = world_on(store, server, tmp_path)
        over_two_pods(world)
        torch = another_image(server, tmp_path / "image")
        run = begin(world, "run", "irises")
        killed = kill_a_pod_in_training(server, store, world.extra["KUBECONFIG"])
        said = run.ends()
        assert "From the lost pod to the next step: " in said
        status = world.status("irises")
        assert status["release"]["decision"] == "passed"
        cleared = [call.name for call in server.calls.of("delete", "jobs")]
        assert {name.split("-")[1] for name in cleared} == {"sanity", "train", "score"}
        assert server.pods() == []
        assert SECRET not in json.dumps(status)

        now = open_pipeline("irises", world.settings).now()
        (lost,) = tells_of_the_pods(world, now, torch).lost
        assert (lost.attempt, lost.cause, lost.pod) == (1, "PodDeleted", killed)
        data = require_record(now, now.address("training_set"))
        assert released_weights(store, status) == trained_here(world, data, tmp_path / "here")
        assert server.failures == []


@pytest.mark.daemon
def test_a_model_that_pods_train_brings_no_row_to_the_machine_that_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(monkeypatch) as store, ApiServer() as server:
        world = world_on(store, server, tmp_path)
        world.cli("run", "irises", "--through", "training_set")
        cache = tmp_path / "state" / "objects"
        shutil.rmtree(cache)
        world.cli("run", "irises", "--through", "trained_model")
        assert [file.name for file in cache.glob("shards/*/*/*")] == ["schema.json"]
        world.cli("run", "irises")
        assert len([*cache.glob("shards/*/*/rows.parquet")]) > 1, "the report reads the holdout"


def released_weights(store: S3Server, status: dict[str, Any]) -> str:
    """SHA-256 of the weights of the released model, as it says itself."""
    name = f"state/models/{status['release']['version']}/model.json"
    content = store.client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
    return ModelManifest.model_validate_json(content).weights.sha256


@pytest.mark.daemon
@pytest.mark.timeout(1800)  # a walk, and what follows it
def test_a_release_predicts_and_is_measured_in_pods_and_is_exported_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(monkeypatch) as store, ApiServer() as server:
        world = world_on(store, server, tmp_path)
        world.cli("run", "irises")
        calls = len(server.calls)
        again = world.cli("run", "irises")
        assert "skip  irises/trained_model" in again and "make  " not in again
        assert len(server.calls) == calls, "what is finished asks no cluster"
        shutil.rmtree(tmp_path / "state" / "objects")  # the disk of its pod was ephemeral
        world.cli("release", "export", "irises", "--to", str(tmp_path / "card"))
        world.cli("release", "verify", str(tmp_path / "card"))
        before = len(server.calls.of("delete", "jobs"))
        flowers = (world.sources / "irises.csv").read_text().splitlines()[:4]
        (tmp_path / "three.csv").write_text("\n".join(flowers) + "\n")
        assert "prediction" in world.cli("predict", "irises", str(tmp_path / "three.csv"))
        world.cli("models", "tune-batch", "irises", "--batch", "24", "--processes", "1")
        cleared = server.calls.of("delete", "jobs")[before:]
        verbs = [call.name.split("-")[1] for call in cleared]
        assert list(dict.fromkeys(verbs)) == ["score", "measure"]
        assert server.pods() == []
        assert [key for key in store.everything() if "/scratch/" in key] == []
        assert server.failures == []
