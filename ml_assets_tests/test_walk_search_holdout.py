"""A search whose rows are held out later: its winner is not trained by, and people are told."""

from pathlib import Path

import dagster as dg
import pytest

from ml_assets.definitions import build
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.automation.conftest import QUIET, make_it_quick
from ml_assets_tests.worlds import deliveries, irises
from ml_assets_tests.worlds.world import World

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(1200)]

RATES = """\
search:
  trials: 1
  parallel: 1
  seeds: 0
  adopt: true
  parameters:
    training.learning_rate: {kind: log_float, low: 0.005, high: 0.1}
"""
TREES = """\
search:
  method: grid
  trials: 2
  parallel: 1
  seeds: 0
  adopt: true
  parameters:
    model.learning_rate: {kind: choice, values: [0.05, 0.1]}
"""


def searched(world: World, name: str) -> bool:
    """Whether the model that is published has the settings of a winner."""
    return "search" in world.page(name, "trained_model")


def test_a_winner_chosen_on_rows_that_are_held_out_now_is_not_trained_by(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    folder = world.pipelines / "irises"
    (folder / "search.yaml").write_text(RATES)
    spec = folder / "defs.yaml"
    model = ("run", "irises", "--through", "trained_model")
    text = spec.read_text().replace("learning_rate: 0.01", "learning_rate: 0.0002")
    text = text.replace("epochs: 30", "epochs: 6")
    spec.write_text(text.replace("validation: 0.2, holdout: 0.3", "validation: 0.45, holdout: 0.1"))
    world.cli(*model, "--search")
    assert searched(world, "irises")

    spec.write_text(text.replace("validation: 0.2, holdout: 0.3", "validation: 0.2, holdout: 0.45"))
    mend = "Search again: ml-assets run irises --search"
    due = world.cli(*model, "--dry-run").splitlines()
    (note,) = [line for line in due if line.startswith("note  trial ")]
    assert "is not adopted; the spec's own values are used" in note and note.endswith(mend)
    said = world.cli(*model)
    assert note.removeprefix("note  ") in said
    assert not searched(world, "irises")
    said = world.cli(*model)
    assert "make" not in said and mend not in said, "it is made, and told once"

    world.cli(*model, "--search")
    assert searched(world, "irises"), "the mend that is named is one"


def test_a_study_counts_for_the_split_that_made_its_rows_whatever_the_spec_says_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path).plant(irises)
    folder = world.pipelines / "irises"
    (folder / "search.yaml").write_text(RATES)
    spec = folder / "defs.yaml"
    spec.write_text(spec.read_text().replace("learning_rate: 0.01", "learning_rate: 0.0002"))
    world.cli("run", "irises", "--through", "training_set")
    was = spec.read_text()
    spec.write_text(was.replace("holdout: 0.3", "holdout: 0.45"))

    world.enter(monkeypatch)
    job = build(world.settings, only="irises").resolve_implicit_global_asset_job_def()
    study = job.get_subset(asset_selection={dg.AssetKey(["irises", "hyperparameter_search"])})
    with dg.instance_for_test() as instance:
        assert study.execute_in_process(instance=instance, run_config=QUIET).success
    assert "another split" in open_pipeline("irises", world.settings).set_aside
    spec.write_text(was)
    assert open_pipeline("irises", world.settings).winner is not None


def test_a_winner_of_later_weeks_is_trained_by_from_its_own_window_on(tmp_path: Path) -> None:
    world = World(tmp_path).plant(deliveries, weeks=15, automation="{landing: {}}")
    folder = world.pipelines / "deliveries"
    spec = folder / "defs.yaml"
    make_it_quick(spec)
    spec.write_text(spec.read_text().replace("rounds: 20", "rounds: 20, learning_rate: 0.001"))
    (folder / "search.yaml").write_text(TREES)
    world.cli("run", "deliveries", "--search")
    assert searched(world, "deliveries")

    earlier = ("run", "deliveries", "--as-of", "2024-04-01")
    mend = "Search again: ml-assets run deliveries --search --as-of 2024-04-01"
    assert mend in world.cli(*earlier, "--dry-run")
    assert mend in world.cli(*earlier)
    assert not searched(world, "deliveries")
    assert "make" not in world.cli(*earlier, "--through", "evaluation_report")

    deliveries.land(world.sources, 16)
    assert "Search again" not in world.cli("run", "deliveries")
    assert searched(world, "deliveries"), "it was chosen before all that is held out now"
