"""What `ml-assets status` says of the next run: what it makes, and why."""

import json
from pathlib import Path

from ml_assets.actions.due import due_now
from ml_assets.spec.stages import MODEL_STAGES
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World


def test_the_next_run_makes_what_is_told_and_nothing_else(tmp_path: Path) -> None:
    world = World(tmp_path)
    irises.plant(world.pipelines, world.sources)
    assert "due" not in world.cli("status", "irises")
    assert json.loads(world.cli("status", "irises", "--json"))["due"] is None
    world.cli("run", "irises", "--through", "feature_set")
    due = due_now(open_pipeline("irises", world.settings))
    assert due == [
        *(f"make  irises/{stage}: never made" for stage in MODEL_STAGES),
        "make  sanity checks: the training set is due",
        "make  gates: the report is due",
    ]
    told = world.cli("status", "irises").splitlines()
    assert told[told.index("due, for ml-assets run irises:") + 1 :] == [f"  {one}" for one in due]


def test_other_rows_are_due_and_the_model_may_follow(released: World, tmp_path: Path) -> None:
    home = str(released.settings.home)
    other = World(
        tmp_path, {"ML_ASSETS_HOME": home, "ML_ASSETS_PIPELINES": str(released.pipelines)}
    )
    irises.write_flowers(other.sources, "virginica")
    due = due_now(open_pipeline("irises", other.settings))
    assert due == [
        "make  irises/raw_snapshot/raw_flowers: an input changed",
        "make  irises/validated_table/flowers: an input is due",
        "make  irises/feature_set: an input is due",
        "then  the stages of the model, if their rows changed",
    ]


def test_a_source_that_is_gone_is_told_in_its_place(released: World, tmp_path: Path) -> None:
    home = str(released.settings.home)
    other = World(
        tmp_path, {"ML_ASSETS_HOME": home, "ML_ASSETS_PIPELINES": str(released.pipelines)}
    )
    (said,) = due_now(open_pipeline("irises", other.settings))
    assert said.startswith("stop  ") and "ML_ASSETS_SOURCES" in said
    assert said in other.cli("status", "irises")
