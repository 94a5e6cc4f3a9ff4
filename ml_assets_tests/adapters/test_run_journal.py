"""The record of a run holds each attempt once, and whole."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from ml_assets.adapters.run_journal import StepJournal
from ml_assets.assets.trained_model.cost.jobs import Job, jobs_of
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.session_name import SESSIONS_TAG
from ml_assets.launch.usage import keep_usage, usage_of
from ml_assets.records.experiments import MODEL as MODEL_FILE
from ml_assets.settings import Prices
from ml_assets.spec.training import TrainingSpec
from ml_assets.spec.training_program import Ref, TrainOutput, TrainRequest, World
from ml_assets.spec.usage import Held
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.objects import LocalObjects
from ml_assets.store.pipeline_context import Pipeline
from ml_assets_tests.actions.house import MODEL
from ml_assets_tests.worlds.opened import on_cluster, pipeline_of

SESSION = "flight_delays-train-0123456789ab"
NOW = datetime.now(UTC)
BEGAN = NOW - timedelta(hours=20)
REQUEST = TrainRequest(
    session=SESSION,
    attempt=1,
    model=MODEL,
    training=TrainingSpec(),
    data=Ref(uri="/data", digest="d" * 64),
    resume=None,
    output=TrainOutput(checkpoints="/c", model="/m", events="/e", result="/r"),
    world=World(),
)


@pytest.fixture
def flights(tmp_path: Path) -> Pipeline:
    return pipeline_of(
        store=EmbeddedStore(tmp_path / "snapshots"),
        objects=LocalObjects(tmp_path / "objects"),
    )


def journal(pipeline: Pipeline, run: str) -> StepJournal:
    """Of a run that asked for the session."""
    asked = dg.DagsterRun("train", run_id=run, tags={SESSIONS_TAG: SESSION})
    instance: Any = SimpleNamespace(get_run_by_id=lambda run_id: asked)
    context = SimpleNamespace(
        run=asked, instance=instance, log=SimpleNamespace(warning=pytest.fail)
    )
    stores = SimpleNamespace(open=lambda given: given)
    return StepJournal(pipeline, "checkpoints", context, {"stores": stores})


def began(pipeline: Pipeline) -> SessionFolder:
    """The session, whose first attempt began twenty hours ago and has told nothing yet."""
    folder = SessionFolder(pipeline.objects.path("sessions", SESSION))
    os.utime(folder.begin(REQUEST), (BEGAN.timestamp(), BEGAN.timestamp()))
    return folder


def stopped(pipeline: Pipeline, run: str) -> None:
    with pytest.raises(KeyboardInterrupt), journal(pipeline, run).written():
        raise KeyboardInterrupt


def job(pipeline: Pipeline) -> Job:
    (found,) = jobs_of(pipeline, Prices())
    return found


def test_an_attempt_that_outlives_its_run_on_a_cluster_is_billed_when_it_has_ended(
    flights: Pipeline,
) -> None:
    there = on_cluster(flights)
    vars(there).update(store=flights.store, objects=flights.objects)
    folder = began(there)
    stopped(there, "run-1")
    held = Held(
        nodes=1,
        gpus_per_node=0,
        price_class="on-demand",
        created=BEGAN,
        scheduled=BEGAN,
        started=BEGAN,
        ended=NOW,
    )
    keep_usage(folder, usage_of("flight_delays", REQUEST, held, "done", ()))
    with journal(there, "run-2").written():
        pass
    found = job(there)
    assert (found.done, found.run) == (True, "run-2")
    assert found.uses[0].usage.held == held


def test_an_attempt_of_this_machine_ends_with_its_run_and_is_billed_then(
    flights: Pipeline,
) -> None:
    began(flights)
    stopped(flights, "run-1")
    found = job(flights)
    assert (found.done, found.run) == (False, "run-1")


def test_a_run_that_only_releases_tells_which_model(flights: Pipeline) -> None:
    """As after an override: nothing is trained or judged again."""
    made = {flights.address("trained_model").record: b"model"}
    with flights.store.open(flights.store.resolve(), "made") as workspace:
        for path, data in made.items():
            workspace.put_bytes(path, data)
        workspace.commit("made", {})
        workspace.publish()
    step = journal(flights, "run-1")
    step.stage = "released_model"
    assert step._made() == {MODEL_FILE: b"model"}, "what is lost fails no release"
