"""What `ml-assets run --dry-run` says: what a run would make, and why. It makes nothing."""

from pathlib import Path

import pytest

from ml_assets.actions.run.due import due_now
from ml_assets.actions.run.run import Request
from ml_assets.cli.main import main
from ml_assets.errors import SourceError
from ml_assets.spec.stages import MODEL_STAGES
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

NOW = Request("irises")


def elsewhere(released: World, folder: Path) -> World:
    """The released home, whose sources lie in another folder."""
    home, pipelines = str(released.settings.home), str(released.pipelines)
    return World(folder, {"ML_ASSETS_HOME": home, "ML_ASSETS_PIPELINES": pipelines})


def test_before_the_first_run_everything_is_due_and_nothing_is_made(tmp_path: Path) -> None:
    world = World(tmp_path)
    irises.plant(world.pipelines, world.sources)
    assert world.cli("run", "irises", "--dry-run").splitlines() == [
        "make  irises/raw_snapshot/raw_flowers: never made",
        "make  irises/validated_table/flowers: never made",
        "make  irises/feature_set: never made",
        "then  the stages of the model, if their rows changed",
    ]
    assert "nothing is made yet" in world.cli("status", "irises")
    assert "made     raw_snapshot" in world.cli("run", "irises", "--through", "raw_snapshot")


def test_the_next_run_makes_what_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    irises.plant(world.pipelines, world.sources)
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
    assert due_now(open_pipeline("irises", other.settings), NOW) == [
        "make  irises/raw_snapshot/raw_flowers: an input changed",
        "make  irises/validated_table/flowers: an input is due",
        "make  irises/feature_set: an input is due",
        "then  the stages of the model, if their rows changed",
    ]


def test_a_fresh_training_is_due_whatever_is_there(released: World) -> None:
    pipeline = open_pipeline("irises", released.settings)
    due = due_now(pipeline, Request("irises", fresh=True, through="trained_model"))
    assert due[:2] == [
        f"make  irises/{stage}: asked for again" for stage in ("checkpoints", "trained_model")
    ]


def test_what_would_end_a_run_ends_this(
    released: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = elsewhere(released, tmp_path)
    with pytest.raises(SourceError, match="ML_ASSETS_SOURCES"):
        due_now(open_pipeline("irises", other.settings), NOW)
    assert main(["run", "irises", "--dry-run", "--search"]) == 2
    assert "leave one out" in capsys.readouterr().err
