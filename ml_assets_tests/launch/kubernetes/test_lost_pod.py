"""A training of ours loses a pod and goes on: on the tests' own cluster, and on a real one.

A real one needs the training image, by a digest that its nodes can pull, and an address of this
machine that its pods reach: the store listens there.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from ml_assets.launch.session_name import train_session
from ml_assets_tests.launch.kubernetes.stage import IMAGE, Stage, weights
from ml_assets_tests.launch.real import STEPS, named
from ml_assets_tests.servers.kubernetes.cluster import KUBECONFIG
from ml_assets_tests.servers.s3 import s3_server
from ml_assets_tests.worlds.iris_pods import between_two_saves

TRAINING_IMAGE = "ML_ASSETS_TEST_TRAINING_IMAGE"
ADDRESS = "ML_ASSETS_TEST_ADDRESS"
if not os.environ.get(KUBECONFIG):
    pytestmark = pytest.mark.daemon  # what it shows of the tests' own server others show, too


@pytest.mark.timeout(900)  # a real cluster pulls the image first
def test_a_training_whose_pod_is_killed_goes_on_from_its_last_checkpoint(
    cluster, tmp_path, monkeypatch
):
    image, address = IMAGE, "127.0.0.1"
    if cluster.own is None:
        image, address = os.environ.get(TRAINING_IMAGE), os.environ.get(ADDRESS)
        if not (image and address):
            pytest.skip(f"a real cluster needs {TRAINING_IMAGE} and {ADDRESS}")
    with s3_server(monkeypatch, address) as store:
        stage = Stage(tmp_path / "home", cluster, store, image=image).furnish()
        job, launcher = stage.job(), stage.launcher()

        def kill():
            with between_two_saves(store):
                return launcher.kill(train_session(job), attempt=1, rank=1)

        with ThreadPoolExecutor() as beside:
            killed = beside.submit(kill)
            result = launcher.train(job, stage.events.append)
            assert killed.result(timeout=1)
        assert (result.attempt, result.step) == (2, STEPS)
        (lost,) = [event.lost for event in named(stage.events, "warning") if event.lost]
        assert (lost.attempt, lost.cause) == (1, "PodDeleted")
        told = [event.message for event in named(stage.events, "progress")]
        assert any(message.startswith("resumed") for message in told), told
        assert weights(result)
        assert stage.left() == []
