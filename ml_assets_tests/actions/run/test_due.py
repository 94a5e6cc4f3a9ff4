"""What `ml-assets run --dry-run` says: what a run would make, and why. It makes nothing."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.actions.run.due import due_now
from ml_assets.actions.run.fresh_training import FreshTraining
from ml_assets.actions.run.run import Request
from ml_assets.adapters.runs import PID_TAG, PIPELINE_TAG, TRIGGER_TAG
from ml_assets.errors import SourceError
from ml_assets.spec.stages import MODEL_STAGES
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

NOW = Request("irises")


def elsewhere(released: World, folder: Path) -> World:
    """The released home, whose sources lie in another folder."""
    home, pipelines = str(released.settings.home), str(released.pipelines)
    return World(folder, {"ML_ASSETS_HOME": home, "ML_ASSETS_PIPELINES": pipelines})


def test_before_the_first_run_everything_is_due_then_what_is_at_work_is_told(
    tmp_path: Path,
) -> None:
    world = World(tmp_path).plant(irises)
    assert world.cli("run", "irises", "--dry-run").splitlines() == [
        "make  irises/raw_snapshot/raw_flowers: never made",
        "make  irises/validated_table/flowers: never made",
        "make  irises/feature_set: never made",
        f"then  {', '.join(MODEL_STAGES)}: never made",
    ]
    through = world.cli("run", "irises", "--dry-run", "--through", "trained_model").splitlines()
    assert through[-1] == "then  training_set, checkpoints, trained_model: never made"
    assert "nothing is made yet" in world.cli("status", "irises")
    assert "made     raw_snapshot" in world.cli("run", "irises", "--through", "raw_snapshot")
    require_only_a_run_that_is_at_work_is_told(world)


def require_only_a_run_that_is_at_work_is_told(world: World) -> None:
    """One run goes on, the process of the other is gone; the world has its snapshot and no more."""
    with world.instance() as instance:
        for pid in (os.getpid(), gone()):
            tags = {PIPELINE_TAG: "irises", PID_TAG: str(pid), TRIGGER_TAG: "command line"}
            run = dg.DagsterRun("__ASSET_JOB", status=dg.DagsterRunStatus.STARTED, tags=tags)
            instance.add_run(run)
    first, second, *_ = world.cli("run", "irises", "--dry-run").splitlines()
    note = r"note  run \w{8} \(command line, started\) is at work on irises: what it has yet"
    assert re.match(note, first)
    assert second == "make  irises/validated_table/flowers: never made"


def gone() -> int:
    """The number of a process that ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_the_next_run_makes_what_is_told(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    world.cli("run", "irises", "--through", "feature_set")
    model = [f"make  irises/{stage}: never made" for stage in MODEL_STAGES]
    due = due_now(open_pipeline("irises", world.settings), NOW)
    checks = ["make  sanity checks: the training set is due", "make  gates: the report is due"]
    assert due == [*model, *checks]
    through = world.cli("run", "irises", "--dry-run", "--through", "training_set")
    assert through.splitlines() == [model[0], checks[0]]
    assert world.cli("run", "irises", "--dry-run", "--through", "feature_set") == "nothing is due\n"


def test_other_rows_are_due_and_the_model_may_follow(released: World, tmp_path: Path) -> None:
    other = elsewhere(released, tmp_path)
    irises.write_flowers(other.sources, "virginica")
    due = due_now(open_pipeline("irises", other.settings), NOW)
    assert due[:4] == [
        "make  irises/raw_snapshot/raw_flowers: an input changed",
        "make  irises/validated_table/flowers: an input is due",
        "make  irises/feature_set: an input is due",
        "then  training_set, checkpoints, trained_model: where their rows change",
    ]
    assert "then  gates: the report is due" in due  # by a spec that was changed and put back


def test_what_the_spec_asks_of_the_model_is_due_whatever_the_rows_will_be(
    released: World, tmp_path: Path
) -> None:
    other = elsewhere(released, tmp_path)
    irises.write_flowers(other.sources, "virginica")
    asked = Request("irises", epochs=3, through="trained_model")
    model = due_now(open_pipeline("irises", other.settings), asked)[3:]
    assert model[0] == "then  training_set: where their rows change"
    assert [line.split(":")[0] for line in model[1:3]] == [
        "then  irises/checkpoints",
        "then  irises/trained_model",
    ]


def test_a_fresh_training_that_was_interrupted_is_told_and_stays(
    released: World, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(released.settings.home, home)
    own = World(
        tmp_path,
        {
            "ML_ASSETS_HOME": str(home),
            "ML_ASSETS_PIPELINES": str(released.pipelines),
            "ML_ASSETS_SOURCES": str(released.sources),
        },
    )
    FreshTraining(home, "irises").salt(True, None, None)
    pipeline = open_pipeline("irises", own.settings)
    due = due_now(pipeline, NOW)
    assert due[0].startswith("note  the fresh training that was interrupted continues")
    assert "make  irises/checkpoints: asked for again" in due
    dropped = due_now(pipeline, Request("irises", fresh=False))
    assert dropped[0] == "note  the fresh training that was interrupted is dropped"
    assert not any("/checkpoints" in line for line in dropped)
    assert due_now(pipeline, NOW) == due


def test_a_fresh_training_is_due_whatever_is_there(released: World) -> None:
    pipeline = open_pipeline("irises", released.settings)
    due = due_now(pipeline, Request("irises", fresh=True, through="trained_model"))
    assert due[:2] == [
        f"make  irises/{stage}: asked for again" for stage in ("checkpoints", "trained_model")
    ]


@pytest.mark.daemon
def test_a_refused_model_is_told_with_its_gates_until_something_changes(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    spec = world.pipelines / "irises" / "defs.yaml"
    spec.write_text(irises.SPEC.replace("at_least: 0.8", "at_least: 0.9999"))
    world.cli("run", "irises", code=3)
    (line,) = world.cli("run", "irises", "--dry-run").splitlines()
    assert line.startswith("refuse  irises/released_model: model ")
    assert "was refused by 1 of 3 gates: accuracy_floor: accuracy is 0.9" in line
    assert "It is judged again when its data, its spec, its gates or the champion change" in line
    again = world.cli("run", "irises", code=3)
    assert line.removeprefix("refuse  irises/released_model: ") in again
    assert "nothing is in production yet" in again and "> irises__" not in again, "no run begins"
    assert world.cli("run", "irises", "--dry-run", "--through", "evaluation_report") == (
        "nothing is due\n"
    )

    spec.write_text(irises.SPEC)
    changed = due_now(open_pipeline("irises", world.settings), NOW)
    assert "make  gates: the report is due" in changed
    assert not any("refuse" in one for one in changed)

    spec.write_text(irises.SPEC.replace("at_least: 0.8", "at_least: 0.9999"))
    world.cli("release", "override", "irises", "--author", "ada", "--reason", "no other is there")
    (due,) = due_now(open_pipeline("irises", world.settings), NOW)
    assert due.startswith("make  irises/released_model")


def test_what_would_end_a_run_ends_this(released: World, tmp_path: Path, cli: Cli) -> None:
    other = elsewhere(released, tmp_path)
    with pytest.raises(SourceError, match="ML_ASSETS_SOURCES"):
        due_now(open_pipeline("irises", other.settings), NOW)
    assert "Leave --search out" in cli("run", "irises", "--dry-run", "--search", code=2).err
