"""A pipeline on spot machines, with the example's queues: what goes with its training is let in."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from ml_assets.assets.evaluation_report import scoring
from ml_assets.assets.released_model import predict
from ml_assets.errors import TrainingFailed
from ml_assets.launch.kubernetes.launcher import KubernetesLauncher
from ml_assets.launch.launcher import SanityJob, ScoreJob
from ml_assets.settings.cluster import Taint
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.training_program import Ref
from ml_assets.store.embedded.trust import given_keys
from ml_assets_tests.launch.kubernetes.orders import SPOT, spec_of
from ml_assets_tests.launch.kubernetes.stage import ONE_NODE, Stage
from ml_assets_tests.servers.kubernetes.resources import WORKLOADS

KUEUE = Path(__file__).parents[3] / "deploy" / "kueue"
LABEL, VALUE = "ml-assets.io/capacity", "spot"
QUEUED = ClusterSpec(cpu="100m", memory="2Gi", queue="forecasting-spot")


@pytest.fixture
def stage(tmp_path, cluster, store):
    """The queues that deploy/kueue declares, and one spot node."""
    stage, server = Stage(tmp_path / "home", cluster, store).furnish(), cluster.server
    for name in ("flavors", "cluster-queues", "local-queues"):
        for one in yaml.safe_load_all((KUEUE / f"{name}.yaml").read_text()):
            one["metadata"].pop("namespace", None)
            server.apply(one)
    taint = {"key": LABEL, "value": VALUE, "effect": "NoSchedule"}
    server.add_node("spot-1", labels={LABEL: VALUE}, taints=[taint])
    return stage


def kept_out(stage: Stage) -> list[str]:
    """What Kueue says of the Jobs that it does not let in."""
    return [
        one["message"]
        for workload in stage.cluster.server.store.all(WORKLOADS)
        for one in workload["status"].get("conditions", ())
        if (one["type"], one["reason"]) == ("QuotaReserved", "Pending")
    ]


@pytest.mark.daemon
@pytest.mark.timeout(900)
def test_the_examination_and_the_scores_of_a_training_on_spot_are_admitted(stage, undisturbed):
    settings = replace(
        stage.settings,
        spot_selector=((LABEL, VALUE),),
        spot_taints=(Taint(LABEL, VALUE, "NoSchedule"),),
    )
    launcher = KubernetesLauncher(stage.objects, settings, given_keys, api=stage.api())
    job = stage.job(processes=1, spot=SPOT)
    how = (stage.events.append, lambda: bool(kept_out(stage)))
    examination = SanityJob("demo", job.model, job.training, job.data, QUEUED)
    launcher.sanity(examination, *how)
    model = undisturbed[1].model
    scores = ScoreJob("demo", model, job.data, "holdout", cluster=QUEUED, spot=True)
    assert launcher.score(scores, *how).rows == 120
    assert kept_out(stage) == []


@pytest.mark.daemon
@pytest.mark.timeout(900)
def test_without_a_queue_the_scores_of_a_training_on_spot_need_no_spot_nodes(stage, undisturbed):
    scores = ScoreJob(
        "demo", undisturbed[1].model, stage.job().data, "holdout", cluster=ONE_NODE, spot=True
    )
    assert stage.launcher().score(scores, stage.events.append).rows == 120


class Asked:
    """A launcher that notes what it is asked for, and does nothing of it."""

    def __init__(self) -> None:
        self.jobs: list[ScoreJob] = []

    def score(self, job: ScoreJob, *_: object) -> Any:
        self.jobs.append(job)
        raise TrainingFailed("noted")


@pytest.mark.parametrize("spot", [None, SPOT])
def test_whoever_scores_for_a_pipeline_says_whether_it_is_on_spot(
    spot: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, model, asked = spec_of({}, spot=spot), Ref(uri="m", digest="0" * 64), Asked()
    monkeypatch.setattr(scoring, "remember_session", lambda *_: None)
    context: Any = SimpleNamespace(instance=None, run=SimpleNamespace(run_id=""), log=None)
    subject = scoring.Subject(model, None, None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TrainingFailed, match="noted"):
        scoring.score(context, asked, spec, subject, model, "holdout")  # pyright: ignore[reportArgumentType]

    objects = SimpleNamespace(folder=lambda *_: None)
    session = SimpleNamespace(launcher=asked, objects=objects, reachable=lambda ref: ref)
    monkeypatch.setattr(predict, "ephemeral_launcher", lambda *_: nullcontext(session))
    monkeypatch.setattr(predict, "write_rows_to_score", lambda *_: model)
    monkeypatch.setattr(predict, "certified_network", lambda *_: None)
    pipeline: Any = SimpleNamespace(name=spec.name, spec=spec, settings=None)
    release: Any = SimpleNamespace(model=model, manifest=None)
    with pytest.raises(TrainingFailed, match="noted"):
        predict.score(pipeline, release, release)
    assert [job.spot for job in asked.jobs] == [spot is not None] * 2
