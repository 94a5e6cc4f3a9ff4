"""Work that leaves nothing, on a cluster: where the settings say, in a store of its own."""

import random
from functools import partial

import pytest

from ml_assets.errors import MlAssetsError
from ml_assets.launch.drill import resume_drill
from ml_assets.launch.ephemeral_session import ephemeral_launcher
from ml_assets.launch.launcher import ScoreJob
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.settings import read_settings
from ml_assets_tests.launch.kubernetes.stage import IMAGE, ONE_NODE, URI, Stage
from ml_assets_tests.store.s3_rights import PODS

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]


@pytest.fixture
def stage(tmp_path, cluster, store, monkeypatch):
    """A home whose settings name the cluster."""
    stage = Stage(tmp_path / "home", cluster, store).furnish()
    for name, value in {
        "ML_ASSETS_HOME": str(stage.home),
        "ML_ASSETS_LAUNCHER": "kubernetes",
        "ML_ASSETS_OBJECTS": URI,
        "ML_ASSETS_TRAINING_IMAGE": IMAGE,
        "ML_ASSETS_NAMESPACE": cluster.namespace,
        "KUBECONFIG": str(cluster.kubeconfig),
        "AWS_ENDPOINT_URL": store.endpoint,
    }.items():
        monkeypatch.setenv(name, value)
    return stage


def scratch(stage: Stage) -> list[str]:
    """What lies in ephemeral stores, in the bucket and here."""
    there = [key for key in stage.store.everything() if "/scratch/" in key]
    return [*there, *map(str, (stage.home / "scratch").glob("*"))]


def cleared(stage: Stage) -> list[str]:
    return [call.name for call in stage.cluster.server.calls.of("delete", "jobs")]


def test_a_drill_deletes_a_pod_and_the_weights_are_the_same(stage):
    job = stage.job(cluster=ONE_NODE, processes=1)
    opened = partial(ephemeral_launcher, read_settings(), "drill")
    outcome = resume_drill(job, opened, random.Random(1))
    assert outcome.passed, outcome.reason
    assert outcome.rank == 0 and outcome.seconds is not None
    assert stage.left() == [] and scratch(stage) == []
    assert stage.cluster.server.calls.of("delete", "pods"), "it was a pod that was killed"
    used = stage.store.rights[PODS].used
    assert {("s3:GetObject", "shards"), ("s3:PutObject", "scratch")} <= used
    assert {place for action, place in used if action == "s3:PutObject"} == {"scratch"}


def test_the_same_score_twice_at_once_is_two_jobs_and_equals_that_of_this_machine(
    stage, undisturbed, tmp_path
):
    data = stage.job().data
    model = undisturbed[1].model
    scores = []
    with (
        ephemeral_launcher(read_settings(), "predict") as one,
        ephemeral_launcher(read_settings(), "predict") as other,
    ):
        for session in (one, other):
            job = ScoreJob("demo", model, session.reachable(data), "holdout", cluster=ONE_NODE)
            scores.append(session.launcher.score(job, lambda _: None).predictions.sha256)
    here = LocalLauncher(tmp_path / "here").score(
        ScoreJob("demo", model, data, "holdout"), lambda _: None
    )
    assert scores == [here.predictions.sha256] * 2
    assert len(set(cleared(stage))) == 2
    assert stage.left() == [] and scratch(stage) == []


def test_a_score_that_fails_leaves_nothing_either(stage, undisturbed):
    model = undisturbed[1].model
    data = stage.job().data
    with (
        pytest.raises(MlAssetsError),
        ephemeral_launcher(read_settings(), "predict", retries=0) as session,
    ):
        lent = session.reachable(data)
        stage.store.client.put_object(
            Bucket=lent.uri.split("/")[2],
            Key="/".join(lent.uri.split("/")[3:]) + "/schema.json",
            Body=b"{}",
        )
        job = ScoreJob("demo", model, lent, "holdout", cluster=ONE_NODE)
        session.launcher.score(job, lambda _: None)
    assert stage.left() == [] and scratch(stage) == []
